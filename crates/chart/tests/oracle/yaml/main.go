// Command yaml answers what Helm's YAML and JSON libraries make of a text.
//
// Each line of input is a question {"op": ..., "in": ...}, each line of output its answer: {"out": ...} or {"err": ...},
// {"panic": ...} where the library fails itself, or {"skip": true} where what it answers is up to chance. Texts are in
// base64, as not all of them are UTF-8.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

type question struct {
	Op string `json:"op"`
	In []byte `json:"in"`
}

type answer struct {
	Out   []byte `json:"out,omitempty"`
	Err   []byte `json:"err,omitempty"`
	Panic string `json:"panic,omitempty"`
	Skip  bool   `json:"skip,omitempty"`
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<28)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for in.Scan() {
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := encoder.Encode(reply(q)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := out.Flush(); err != nil {
		os.Exit(1)
	}
}

func reply(q question) (a answer) {
	defer func() {
		if failure := recover(); failure != nil {
			a = answer{Panic: fmt.Sprint(failure)}
		}
	}()
	out, err := run(q)
	if err != nil && strings.Contains(err.Error(), "unsupported map key of type") {
		// Which of several keys it complains of is up to the order of a Go map.
		for range 24 {
			if _, again := run(q); again == nil || again.Error() != err.Error() {
				return answer{Skip: true}
			}
		}
	}
	if err != nil {
		return answer{Err: []byte(err.Error())}
	}
	if strings.HasPrefix(q.Op, "yaml") {
		var value any
		if goyaml.Unmarshal(q.In, &value) == nil && collides(value) {
			return answer{Skip: true}
		}
	}
	return answer{Out: out}
}

func run(q question) ([]byte, error) {
	var value any
	switch q.Op {
	case "yaml", "yaml-strict":
		read := yaml.Unmarshal
		if q.Op == "yaml-strict" {
			read = yaml.UnmarshalStrict
		}
		if err := read(q.In, &value); err != nil {
			return nil, err
		}
		return marshal(value, false, "")
	case "write":
		decoder := json.NewDecoder(bytes.NewReader(q.In))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		return yaml.Marshal(value)
	case "json", "json-html", "json-pretty":
		if err := json.Unmarshal(q.In, &value); err != nil {
			return nil, err
		}
		indent := ""
		if q.Op == "json-pretty" {
			indent = "  "
		}
		return marshal(value, q.Op != "json", indent)
	}
	return nil, fmt.Errorf("unknown op %q", q.Op)
}

func marshal(value any, html bool, indent string) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(html)
	encoder.SetIndent("", indent)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// collides tells whether two keys of a map become the same string, so that chance tells which is kept.
func collides(value any) bool {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			if collides(item) {
				return true
			}
		}
	case map[any]any:
		seen := map[string]bool{}
		for key, item := range value {
			name := fmt.Sprint(key)
			if float, ok := key.(float64); ok {
				name = strconv.FormatFloat(float, 'g', -1, 32)
				if math.IsInf(float, 0) || math.IsNaN(float) || math.IsInf(float64(float32(float)), 0) {
					name = map[string]string{"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}[name]
				}
			}
			if seen[name] || collides(item) {
				return true
			}
			seen[name] = true
		}
	}
	return false
}
