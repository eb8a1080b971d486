// Oracle calls the functions of Go's templates, sprig and Helm for the tests of the chart crate.
//
// Each line of the input is a JSON object: the name of a function, and arguments with their types. Each line of the output is the
// result with its type, or the error without what the template engine says of where it happened.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

type value struct {
	T string          `json:"t"`
	V json.RawMessage `json:"v,omitempty"`
}

type call struct {
	Func string  `json:"func"`
	Args []value `json:"args"`
}

type answer struct {
	Value *value  `json:"value,omitempty"`
	Error *string `json:"error,omitempty"`
}

// decode makes the value that the test describes. Maps of the same identifier are the same.
func decode(v value) any {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	switch v.T {
	case "nil":
		return nil
	case "bool":
		var b bool
		must(json.Unmarshal(v.V, &b))
		return b
	case "int":
		var s string
		must(json.Unmarshal(v.V, &s))
		n, err := strconv.ParseInt(s, 10, 64)
		must(err)
		return int(n)
	case "int64":
		var s string
		must(json.Unmarshal(v.V, &s))
		n, err := strconv.ParseInt(s, 10, 64)
		must(err)
		return n
	case "float":
		var s string
		must(json.Unmarshal(v.V, &s))
		n, err := strconv.ParseUint(s, 16, 64)
		must(err)
		return math.Float64frombits(n)
	case "str":
		var s string
		must(json.Unmarshal(v.V, &s))
		return s
	case "raw", "bytes":
		var s string
		must(json.Unmarshal(v.V, &s))
		b, err := base64.StdEncoding.DecodeString(s)
		must(err)
		if v.T == "raw" {
			return string(b)
		}
		return b
	case "list":
		var items []value
		must(json.Unmarshal(v.V, &items))
		list := make([]any, len(items))
		for i, item := range items {
			list[i] = decode(item)
		}
		return list
	case "strs":
		var items []string
		must(json.Unmarshal(v.V, &items))
		return items
	case "ints":
		var items []int
		must(json.Unmarshal(v.V, &items))
		return items
	case "map", "strmap":
		var entries map[string]value
		must(json.Unmarshal(v.V, &entries))
		if v.T == "strmap" {
			m := map[string]string{}
			for key, entry := range entries {
				m[key] = decode(entry).(string)
			}
			return m
		}
		m := map[string]any{}
		for key, entry := range entries {
			m[key] = decode(entry)
		}
		return m
	case "nilmap":
		return map[string]any(nil)
	case "nillist":
		return []any(nil)
	}
	panic("unknown type " + v.T)
}

func raw(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

func text(s string) value {
	if strings.ToValidUTF8(s, "") == s {
		return value{"str", raw(s)}
	}
	return value{"raw", raw(base64.StdEncoding.EncodeToString([]byte(s)))}
}

// encode describes a result.
func encode(v any) value {
	switch v := v.(type) {
	case nil:
		return value{T: "nil"}
	case bool:
		return value{"bool", raw(v)}
	case int:
		return value{"int", raw(strconv.Itoa(v))}
	case uint8:
		return value{"int", raw(strconv.Itoa(int(v)))}
	case int64:
		return value{"int64", raw(strconv.FormatInt(v, 10))}
	case float64:
		if math.IsNaN(v) {
			v = math.NaN()
		}
		return value{"float", raw(strconv.FormatUint(math.Float64bits(v), 16))}
	case string:
		return text(v)
	case []byte:
		return value{"bytes", raw(base64.StdEncoding.EncodeToString(v))}
	case []any:
		if v == nil {
			return value{T: "nillist"}
		}
		return value{"list", raw(encodeAll(v))}
	case [][]any:
		items := []value{}
		for _, item := range v {
			items = append(items, encode(item))
		}
		return value{"lists", raw(items)}
	case []string:
		if v == nil {
			return value{T: "nilstrs"}
		}
		items := []value{}
		for _, item := range v {
			items = append(items, text(item))
		}
		return value{"strs", raw(items)}
	case []int:
		return value{"ints", raw(append([]int{}, v...))}
	case map[string]any:
		if v == nil {
			return value{T: "nilmap"}
		}
		entries := map[string]value{}
		for key, entry := range v {
			entries[key] = encode(entry)
		}
		return value{"map", raw(entries)}
	case map[string]string:
		entries := map[string]value{}
		for key, entry := range v {
			entries[key] = text(entry)
		}
		return value{"strmap", raw(entries)}
	}
	return value{"host", raw(fmt.Sprintf("%T %v", v, v))}
}

func encodeAll(items []any) []value {
	out := []value{}
	for _, item := range items {
		out = append(out, encode(item))
	}
	return out
}

// keep hands the result of the function out of the template.
type keep struct{ value any }

func (k *keep) Keep(v reflect.Value) string {
	if v.IsValid() && v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.IsValid() {
		k.value = v.Interface()
	} else {
		k.value = nil
	}
	return ""
}

func run(funcs template.FuncMap, c call) (result answer) {
	defer func() {
		if r := recover(); r != nil {
			message := fmt.Sprintf("PANIC %v", r)
			result = answer{Error: &message}
		}
	}()
	args := []any{}
	source := strings.Builder{}
	fmt.Fprintf(&source, "{{ $.K.Keep (%s", c.Func)
	for i, arg := range c.Args {
		args = append(args, decode(arg))
		fmt.Fprintf(&source, " (index $.A %d)", i)
	}
	source.WriteString(") }}")
	t, err := template.New("t").Funcs(funcs).Parse(source.String())
	if err == nil {
		k := &keep{}
		err = t.Execute(&strings.Builder{}, map[string]any{"K": k, "A": args})
		if err == nil {
			if c.Func == "keys" {
				slices.Sort(k.value.([]string))
			}
			encoded := encode(k.value)
			return answer{Value: &encoded}
		}
	}
	message := err.Error()
	if _, after, ok := strings.Cut(message, "error calling "+c.Func+": "); ok {
		message = after
	} else {
		message = "TYPES " + message
	}
	return answer{Error: &message}
}

// helm puts Helm's functions in the place of sprig's, those that need no packages of its own.
func helm(funcs template.FuncMap) {
	warn := func(message string) string { return "HELM_ERR_START" + message + "HELM_ERR_END" }
	funcs["required"] = func(message string, val any) (any, error) {
		if val == nil {
			return val, errors.New(warn(message))
		} else if _, ok := val.(string); ok && val == "" {
			return val, errors.New(warn(message))
		}
		return val, nil
	}
	funcs["fail"] = func(message string) (string, error) { return "", errors.New(warn(message)) }
	funcs["lookup"] = func(string, string, string, string) (map[string]any, error) { return map[string]any{}, nil }
	funcs["getHostByName"] = func(string) string { return "" }
	funcs["mustToDuration"] = func(v any) time.Duration {
		d, err := asDuration(v)
		if err != nil {
			panic(err)
		}
		return d
	}
	of := func(unit func(time.Duration) any, zero any) func(any) any {
		return func(v any) any {
			d, err := asDuration(v)
			if err != nil {
				return zero
			}
			return unit(d)
		}
	}
	maps.Copy(funcs, template.FuncMap{
		"durationSeconds":      of(func(d time.Duration) any { return d.Seconds() }, 0.0),
		"durationMinutes":      of(func(d time.Duration) any { return d.Minutes() }, 0.0),
		"durationHours":        of(func(d time.Duration) any { return d.Hours() }, 0.0),
		"durationDays":         of(func(d time.Duration) any { return d.Hours() / 24.0 }, 0.0),
		"durationWeeks":        of(func(d time.Duration) any { return d.Hours() / 24.0 / 7.0 }, 0.0),
		"durationMilliseconds": of(func(d time.Duration) any { return d.Milliseconds() }, int64(0)),
		"durationMicroseconds": of(func(d time.Duration) any { return d.Microseconds() }, int64(0)),
		"durationNanoseconds":  of(func(d time.Duration) any { return d.Nanoseconds() }, int64(0)),
		"durationRoundTo": func(v, m any) time.Duration {
			d, err := asDuration(v)
			if err != nil {
				return 0
			}
			multiple, err := asDuration(m)
			if err != nil {
				return d
			}
			return d.Round(multiple)
		},
		"durationTruncateTo": func(v, m any) time.Duration {
			d, err := asDuration(v)
			if err != nil {
				return 0
			}
			multiple, err := asDuration(m)
			if err != nil {
				return d
			}
			return d.Truncate(multiple)
		},
	})
}

func fromSeconds(seconds float64) (time.Duration, error) {
	if math.IsNaN(seconds) || math.IsInf(seconds, 0) {
		return 0, fmt.Errorf("invalid duration seconds: %v", seconds)
	}
	limit := float64(math.MaxInt64) / float64(time.Second)
	if seconds > limit || seconds < -limit {
		return 0, fmt.Errorf("duration seconds overflow: %v", seconds)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

func asDuration(v any) (time.Duration, error) {
	switch x := v.(type) {
	case time.Duration:
		return x, nil
	case string:
		s := strings.TrimSpace(x)
		if s == "" {
			return 0, errors.New("empty duration")
		}
		if d, err := time.ParseDuration(s); err == nil {
			return d, nil
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return fromSeconds(f)
		}
		return 0, fmt.Errorf("could not parse duration %q", x)
	case nil:
		return 0, errors.New("invalid duration")
	case int, int64:
		n := reflect.ValueOf(x).Int()
		if limit := math.MaxInt64 / int64(time.Second); n > limit || n < -limit {
			return 0, fmt.Errorf("duration seconds overflow: %d", n)
		}
		return time.Duration(n) * time.Second, nil
	case float64:
		return fromSeconds(x)
	}
	return 0, fmt.Errorf("unsupported duration type %T", v)
}

func main() {
	funcs := sprig.TxtFuncMap()
	delete(funcs, "env")
	delete(funcs, "expandenv")
	helm(funcs)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<26)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for in.Scan() {
		var c call
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			panic(err)
		}
		if err := encoder.Encode(run(funcs, c)); err != nil {
			panic(err)
		}
	}
	if err := in.Err(); err != nil {
		panic(err)
	}
}
