module istio-operators.io/chart/oracle/yaml

go 1.26.0

require (
	go.yaml.in/yaml/v2 v2.4.4
	sigs.k8s.io/yaml v1.6.0
)
