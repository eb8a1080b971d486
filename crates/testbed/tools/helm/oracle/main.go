// Renders charts with Helm's own packages, many in one process: what `cargo xtask parity` compares ours with.
//
// Standard input holds a case on each line, standard output its result.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
)

type request struct {
	// Chart is a folder or an archive.
	Chart string `json:"chart"`
	// Values are values files, later ones winning, as YAML.
	Values []string `json:"values"`
	// Set holds expressions of --set.
	Set          []string `json:"set"`
	Name         string   `json:"name"`
	Namespace    string   `json:"namespace"`
	Revision     int      `json:"revision"`
	IsInstall    bool     `json:"isInstall"`
	IsUpgrade    bool     `json:"isUpgrade"`
	KubeVersion  string   `json:"kubeVersion"`
	APIVersions  []string `json:"apiVersions"`
	SkipSchema   bool     `json:"skipSchema"`
	OnlyCoalesce bool     `json:"onlyCoalesce"`
}

type answer struct {
	Files  map[string]string `json:"files,omitempty"`
	Values map[string]any    `json:"values,omitempty"`
	// Stage names what failed: load, values, dependencies, schema, render.
	Stage string `json:"stage,omitempty"`
	Error string `json:"error,omitempty"`
}

func failed(stage string, err error) answer { return answer{Stage: stage, Error: err.Error()} }

func render(r request) answer {
	// Loaded anew for each case: processing dependencies changes a chart.
	chart, err := loader.Load(r.Chart)
	if err != nil {
		return failed("load", err)
	}
	values := map[string]any{}
	for _, text := range r.Values {
		more, err := common.ReadValues([]byte(text))
		if err != nil {
			return failed("values", err)
		}
		values = loader.MergeMaps(values, more)
	}
	for _, expression := range r.Set {
		if err := strvals.ParseInto(expression, values); err != nil {
			return failed("values", err)
		}
	}
	if err := chartutil.ProcessDependencies(chart, values); err != nil {
		return failed("dependencies", err)
	}
	caps := common.DefaultCapabilities.Copy()
	if r.KubeVersion != "" {
		version, err := common.ParseKubeVersion(r.KubeVersion)
		if err != nil {
			return failed("values", err)
		}
		caps.KubeVersion = *version
	}
	if r.APIVersions != nil {
		caps.APIVersions = r.APIVersions
	}
	options := common.ReleaseOptions{
		Name:      r.Name,
		Namespace: r.Namespace,
		Revision:  r.Revision,
		IsInstall: r.IsInstall,
		IsUpgrade: r.IsUpgrade,
	}
	top, err := util.ToRenderValuesWithSchemaValidation(chart, values, options, caps, r.SkipSchema)
	if err != nil {
		return failed("schema", err)
	}
	if r.OnlyCoalesce {
		coalesced, err := top.Table("Values")
		if err != nil {
			return failed("values", err)
		}
		return answer{Values: coalesced}
	}
	files, err := engine.Render(chart, top)
	if err != nil {
		return failed("render", err)
	}
	return answer{Files: files}
}

// guarded turns a panic of Helm's into an answer, so that one case does not end the run.
func guarded(r request) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{Stage: "panic", Error: fmt.Sprint(p)}
		}
	}()
	return render(r)
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for decoder.More() {
		var r request
		if err := decoder.Decode(&r); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			os.Exit(2)
		}
		if err := encoder.Encode(guarded(r)); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			os.Exit(2)
		}
		if err := out.Flush(); err != nil {
			os.Exit(2)
		}
	}
}
