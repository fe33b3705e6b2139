// Package kubernetes checks the manifests of packaging/kubernetes against the schemas of
// the kinds that they use, as their authors publish them.
package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"ringmaster/internal/testenv"
)

const packaging = "../../packaging/kubernetes"

// modules are where schemas are published, with the checksums of the Go modules.
var modules = map[string]string{
	"sigs.k8s.io/lws@v0.7.0":               "h1:qWfzX8+UBak+Hq0+m/PuE3uO0mp/3dmm5q/h/7z31A8=",
	"sigs.k8s.io/gateway-api@v1.6.3":       "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc=",
	"github.com/envoyproxy/gateway@v1.8.0": "h1:pn5TYSteO1zZjUMPVXGY7ayFDhZAZZWAQ+yDgVzj78o=",
}

// files are the manifests, with the definitions of the kinds in them.
var files = []struct {
	name        string
	definitions map[string]string // "version kind" to a module and a file in it
	fails       map[string]string // what breaks a manifest, by replacing a text in it: "old -> new" to a word of the error
}{
	{"leaderworkerset.yaml", map[string]string{
		"leaderworkerset.x-k8s.io/v1 LeaderWorkerSet": "sigs.k8s.io/lws@v0.7.0 config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
	}, map[string]string{"periodSeconds: 2 -> periodSecond: 2": "periodSecond", "size: 3 -> size: three": "size", "restartPolicy: None -> restartPolicy: Never": "restartPolicy"}},
	{"gateway.yaml", map[string]string{
		"gateway.networking.k8s.io/v1 Gateway":   "sigs.k8s.io/gateway-api@v1.6.3 config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
		"gateway.networking.k8s.io/v1 HTTPRoute": "sigs.k8s.io/gateway-api@v1.6.3 config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
	}, map[string]string{"request: 0s -> request: 0": "request", "value: / -> values: /": "values", "protocol: HTTPS -> protocole: HTTPS": "protocol"}},
	{"gateway-sessions.yaml", map[string]string{
		"gateway.networking.k8s.io/v1 HTTPRoute": "sigs.k8s.io/gateway-api@v1.6.3 config/crd/experimental/gateway.networking.k8s.io_httproutes.yaml",
	}, map[string]string{"type: Cookie -> type: Cake": "type"}},
	{"gateway-envoy.yaml", map[string]string{
		"gateway.envoyproxy.io/v1alpha1 BackendTrafficPolicy": "github.com/envoyproxy/gateway@v1.8.0 charts/gateway-helm/charts/crds/crds/generated/gateway.envoyproxy.io_backendtrafficpolicies.yaml",
	}, map[string]string{"type: Headers -> type: Header5": "type", "refused-stream -> refused": "triggers"}},
}

// TestManifests: every object of a kind that is not Kubernetes' own fits its definition, has
// no field that is not in it, and names objects that are there. Rules of definitions in CEL
// are not run.
func TestManifests(t *testing.T) {
	for _, f := range files {
		t.Run(f.name, func(t *testing.T) {
			text := testenv.ReadFile(t, filepath.Join(packaging, f.name))
			objects := parse(t, text)
			require.NotEmpty(t, objects)
			testenv.Need(t, testenv.Full, "the schemas of Kubernetes' definitions")
			schemas := map[string]*jsonschema.Schema{}
			for kind, at := range f.definitions {
				schemas[kind] = definition(t, kind, at)
			}
			require.NoError(t, valid(schemas, objects))
			seen := map[string]bool{}
			for _, o := range objects {
				seen[kindOf(o)] = true
			}
			for kind := range schemas {
				require.True(t, seen[kind], kind)
			}
			for change, word := range f.fails {
				from, to, _ := strings.Cut(change, " -> ")
				require.Contains(t, string(text), from)
				err := valid(schemas, parse(t, bytes.Replace(text, []byte(from), []byte(to), 1)))
				require.ErrorContains(t, err, word, change)
			}
		})
	}
}

// TestNamesInManifests: routes, policies and Services name what the other files have.
func TestNamesInManifests(t *testing.T) {
	all := map[string]bool{}
	labels := ""
	for _, f := range files {
		text := testenv.ReadFile(t, filepath.Join(packaging, f.name))
		for _, o := range parse(t, text) {
			all[o["kind"].(string)+" "+o["metadata"].(map[string]any)["name"].(string)] = true
		}
		if f.name == "leaderworkerset.yaml" {
			labels = string(text)
		}
	}
	for _, name := range []string{"Service ringmaster", "Gateway ringmaster", "HTTPRoute ringmaster", "BackendTrafficPolicy ringmaster", "LeaderWorkerSet ringmaster"} {
		require.True(t, all[name], name)
	}
	require.Regexp(t, `(?m)^        labels:\n          app: ringmaster\n          role: leader$`, labels, "what the Services select")
	require.Contains(t, labels, "{name: http, containerPort: 8080}", "what their ports name")
	// The leader has time for its preStop and its own end.
	sleep := regexp.MustCompile(`sleep: \{seconds: 45\}`).FindString(labels)
	require.NotEmpty(t, sleep)
	require.Contains(t, labels, "terminationGracePeriodSeconds: 60")
}

// parse reads the objects of a file as JSON would be: numbers as json.Number's values.
func parse(t *testing.T, text []byte) (out []map[string]any) {
	t.Helper()
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o map[string]any
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		js := testenv.JSON(t, o)
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(js))
		require.NoError(t, err)
		out = append(out, value.(map[string]any))
	}
}

func kindOf(o map[string]any) string { return o["apiVersion"].(string) + " " + o["kind"].(string) }

// valid checks objects of the kinds that have a schema. Those of Kubernetes itself (v1) have
// none here.
func valid(schemas map[string]*jsonschema.Schema, objects []map[string]any) error {
	for _, o := range objects {
		kind := kindOf(o)
		s := schemas[kind]
		if s == nil {
			if strings.HasPrefix(kind, "v1 ") {
				continue
			}
			return errors.New("no definition of " + kind)
		}
		if err := s.Validate(o); err != nil {
			return err
		}
	}
	return nil
}

// definition is the schema of a version of a CustomResourceDefinition, closed: an object
// has no members but those that it names, as kubectl's strict validation asks for.
func definition(t *testing.T, kind, at string) *jsonschema.Schema {
	t.Helper()
	module, path, _ := strings.Cut(at, " ")
	text := testenv.ReadFile(t, filepath.Join(fetched(t, module), path))
	var crd struct {
		Spec struct {
			Names    struct{ Kind string }
			Group    string
			Versions []struct {
				Name   string
				Schema struct {
					OpenAPIV3Schema map[string]any `yaml:"openAPIV3Schema"`
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &crd))
	for _, v := range crd.Spec.Versions {
		if crd.Spec.Group+"/"+v.Name+" "+crd.Spec.Names.Kind != kind {
			continue
		}
		root := v.Schema.OpenAPIV3Schema
		closed(root)
		root["properties"].(map[string]any)["metadata"] = map[string]any{"type": "object"}
		js := testenv.JSON(t, root)
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(js))
		require.NoError(t, err)
		c := jsonschema.NewCompiler()
		c.DefaultDraft(jsonschema.Draft4) // OpenAPI 3.0's form of minimum and maximum
		require.NoError(t, c.AddResource("file:///schema.json", value))
		s, err := c.Compile("file:///schema.json")
		require.NoError(t, err)
		return s
	}
	require.Fail(t, "no such version", "%s in %s", kind, path)
	return nil
}

// closed makes an OpenAPI schema one of JSON Schema whose objects have no other members.
func closed(schema map[string]any) {
	delete(schema, "format") // int32 and the like, which JSON Schema does not know
	if schema["x-kubernetes-int-or-string"] == true {
		delete(schema, "type")
	}
	if p, ok := schema["properties"].(map[string]any); ok {
		if _, open := schema["additionalProperties"]; !open && schema["x-kubernetes-preserve-unknown-fields"] != true {
			schema["additionalProperties"] = false
		}
		for _, s := range p {
			closed(s.(map[string]any))
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if s, ok := schema[key].(map[string]any); ok {
			closed(s)
		}
	}
}

// fetched is the folder of a Go module, which is no dependency: only its files are read.
func fetched(t *testing.T, module string) string {
	t.Helper()
	var out, message bytes.Buffer
	ctx := testenv.Within(t, 2*time.Minute)
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &out, &message // outside of our module
	err := cmd.Run()
	var got struct{ Dir, Sum, Error string }
	_ = json.Unmarshal(out.Bytes(), &got)
	if err != nil || got.Error != "" {
		t.Skipf("NOT CHECKED: %s with its schemas cannot be fetched: %s %s", module, got.Error, message.String())
	}
	require.Equal(t, modules[module], got.Sum, module)
	return got.Dir
}
