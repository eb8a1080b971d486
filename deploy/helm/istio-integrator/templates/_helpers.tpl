{{- /* The labels of every object, which are those of deploy/integrator. */ -}}
{{- define "istio-integrator.labels" -}}
app.kubernetes.io/name: istio-integrator
app.kubernetes.io/part-of: istio-operators
{{- end }}

{{- /* The ServiceAccount as the subject of a binding. */ -}}
{{- define "istio-integrator.subjects" -}}
- kind: ServiceAccount
  name: istio-integrator
  namespace: {{ .Release.Namespace }}
{{- end }}
