package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"streamd/config"
	"streamd/ingest/kafka"
	"streamd/ingest/kafka/embedded"
)

const kubernetes = top + "/config/deploy/kubernetes"

// manifest is an object of Kubernetes, as far as tests look at it.
type manifest struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Data map[string]string
	Spec struct {
		Replicas    *int
		ServiceName string `yaml:"serviceName"`
		ClusterIP   string `yaml:"clusterIP"`
		Ports       []struct {
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		Selector    map[string]any
		PodSelector map[string]any `yaml:"podSelector"`
		Template    struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
		Ingress              []struct{ Ports []struct{ Port string } }
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
}

type pod struct {
	Grace           int `yaml:"terminationGracePeriodSeconds"`
	SecurityContext struct {
		NonRoot bool `yaml:"runAsNonRoot"`
		User    int  `yaml:"runAsUser"`
		Group   int  `yaml:"fsGroup"`
	} `yaml:"securityContext"`
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
		Secret    struct {
			Name string `yaml:"secretName"`
		}
	}
}

type container struct {
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	StartupProbe   *probe `yaml:"startupProbe"`
	LivenessProbe  *probe `yaml:"livenessProbe"`
	ReadinessProbe *probe `yaml:"readinessProbe"`
	Resources      struct {
		Requests, Limits struct{ Memory string }
	}
	SecurityContext struct {
		Escalation   *bool                   `yaml:"allowPrivilegeEscalation"`
		ReadOnly     bool                    `yaml:"readOnlyRootFilesystem"`
		Capabilities struct{ Drop []string } `yaml:"capabilities"`
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// manifests are the objects of all files but KEDA's, by kind and name.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(kubernetes, "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%q: %v", files, err)
	}
	all := map[string]manifest{}
	for _, file := range files {
		objects := yaml.NewDecoder(strings.NewReader(readFile(t, file)))
		for {
			var m manifest
			if err := objects.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if m.Kind == "ScaledObject" { // TestDeployedScaling
				continue
			} else if err != nil || m.Metadata.Name == "" {
				t.Fatalf("%s: %v, %q", file, err, m.Metadata.Name)
			}
			all[m.Kind+"/"+m.Metadata.Name] = m
		}
	}
	return all
}

// stage is a workload with its one container.
type stage struct {
	manifest
	container
	env []string // STREAMD_CONFIG names a copy of the ConfigMap's file
	cfg *config.Config
}

// readStage is a stage whose every path lies in a volume, and what streamd makes of its settings.
func readStage(t *testing.T, all map[string]manifest, name string) (s stage) {
	t.Helper()
	s.manifest = all[name]
	pod := s.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("%s has %d containers", name, len(pod.Containers))
	}
	s.container = pod.Containers[0]
	mounts := map[string]string{} // volumes by their places
	for _, m := range s.VolumeMounts {
		mounts[m.MountPath] = m.Name
	}
	volumes := map[string]string{} // what the pod has, by its name there
	for _, v := range pod.Volumes {
		volumes[v.Name] = v.ConfigMap.Name + v.Secret.Name
	}
	for _, c := range s.Spec.VolumeClaimTemplates {
		volumes[c.Metadata.Name] = "a claim"
	}
	for place, volume := range mounts {
		if volumes[volume] == "" {
			t.Errorf("%s: there is no volume %s for %s", name, volume, place)
		}
	}
	s.env = imageVariables(t)
	for _, v := range s.Env {
		switch {
		case v.ValueFrom.FieldRef.FieldPath == "metadata.name":
			v.Value = s.Metadata.Name + "-0"
		case v.Name == config.FileVariable:
			text, ok := all["ConfigMap/"+volumes[mounts[path.Dir(v.Value)]]].Data[path.Base(v.Value)]
			if !ok {
				t.Errorf("%s: no ConfigMap has %s", name, v.Value)
			}
			v.Value = filepath.Join(t.TempDir(), path.Base(v.Value))
			if err := os.WriteFile(v.Value, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case v.Value == "":
			t.Errorf("%s: %s has no value that the test knows", name, v.Name)
		}
		s.env = append(s.env, v.Name+"="+v.Value)
	}
	parses(t, s.Args...)
	var err error
	if s.cfg, err = new(configFile).load(&surroundings{env: s.env}, nil, nil); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if volumes[mounts[path.Dir(s.cfg.HTTP.TokensFile)]] != "streamd-tokens" {
		t.Errorf("%s: the tokens %s are of no Secret", name, s.cfg.HTTP.TokensFile)
	}
	if claim := volumes[mounts[path.Dir(s.cfg.Snapshot.File)]]; claim != "a claim" && s.Args[0] == "run" {
		t.Errorf("%s: the snapshot %s is of no claim", name, s.cfg.Snapshot.File)
	}
	return s
}

// Both stages are what a cautious cluster admits, have room for their memory and time for a stop,
// and agree with each other and with the objects beside them.
func TestDeployedManifests(t *testing.T) {
	all := manifests(t)
	rows, blocks := readStage(t, all, "Deployment/streamd-summarise"), readStage(t, all, "StatefulSet/streamd")
	for _, s := range []stage{rows, blocks} {
		name, pod := s.Metadata.Name, s.Spec.Template.Spec
		if grace := time.Duration(pod.Grace) * time.Second; grace <= s.cfg.ShutdownTimeout {
			t.Errorf("%s: %v for a stop, with a shutdown_timeout of %v", name, grace, s.cfg.ShutdownTimeout)
		}
		if security := pod.SecurityContext; !security.NonRoot || security.User != 65532 || security.Group != 65532 {
			t.Errorf("%s: %+v", name, security)
		}
		if security := s.SecurityContext; security.Escalation == nil || *security.Escalation || !security.ReadOnly || !slices.Equal(security.Capabilities.Drop, []string{"ALL"}) {
			t.Errorf("%s: %+v", name, security)
		}
		whole := int64(effective(t, "STREAMD_KAFKA_TOPIC=x", "STREAMD_LIMITS_MEMORY="+s.Resources.Limits.Memory+"B").Limits.Memory)
		if own := int64(s.cfg.Limits.Memory); own != whole*3/4 || s.Resources.Requests != s.Resources.Limits {
			t.Errorf("%s: limits.memory %d of %d bytes, with %+v", name, own, whole, s.Resources)
		}
		if _, port, _ := net.SplitHostPort(s.cfg.HTTP.Listen); len(s.Ports) != 1 || s.Ports[0].Name != "http" || strconv.Itoa(s.Ports[0].ContainerPort) != port {
			t.Errorf("%s: ports %+v for %s", name, s.Ports, s.cfg.HTTP.Listen)
		}
		if s.LivenessProbe == nil || s.ReadinessProbe == nil {
			t.Fatalf("%s has no probes", name)
		}
		if s.cfg.Kafka.ClientID != name+"-0" {
			t.Errorf("%s: the client is %s", name, s.cfg.Kafka.ClientID)
		}
		if !selects(s.Spec.Selector, s.Spec.Template.Metadata.Labels) {
			t.Errorf("%s: %v does not select %v", name, s.Spec.Selector, s.Spec.Template.Metadata.Labels)
		}
		if policy := all["NetworkPolicy/streamd"].Spec; !selects(policy.PodSelector, s.Spec.Template.Metadata.Labels) || policy.Ingress[0].Ports[0].Port != "http" {
			t.Errorf("the network policy is not that of %s", name)
		}
	}
	if rows.Spec.Replicas != nil || *blocks.Spec.Replicas != 2 {
		t.Errorf("replicas %v and %v", rows.Spec.Replicas, blocks.Spec.Replicas)
	}
	if !slices.Contains(rows.Args, "--to="+blocks.cfg.Kafka.Topic) || rows.cfg.Kafka.Topic == blocks.cfg.Kafka.Topic {
		t.Errorf("%q from %s, for daemons that read %s", rows.Args, rows.cfg.Kafka.Topic, blocks.cfg.Kafka.Topic)
	}

	// What selects the daemons selects no summariser.
	for _, name := range []string{"Service/streamd", "Service/streamd-replicas", "PodDisruptionBudget/streamd"} {
		spec := all[name].Spec
		if !selects(spec.Selector, blocks.Spec.Template.Metadata.Labels) || selects(spec.Selector, rows.Spec.Template.Metadata.Labels) {
			t.Errorf("%s selects %v", name, spec.Selector)
		}
		for _, p := range spec.Ports {
			if p.TargetPort != "http" || p.Port != blocks.Ports[0].ContainerPort {
				t.Errorf("%s has the port %+v", name, p)
			}
		}
	}
	headless := all["Service/"+blocks.Spec.ServiceName]
	if headless.Spec.ClusterIP != "None" || all["Service/streamd"].Spec.ClusterIP != "" {
		t.Errorf("%q is not headless, or both Services are", blocks.Spec.ServiceName)
	}
	names := []string{"streamd"}
	for i := range *blocks.Spec.Replicas {
		names = append(names, fmt.Sprintf("%s-%d.%s", blocks.Metadata.Name, i, headless.Metadata.Name))
	}
	if !slices.Equal(blocks.cfg.HTTP.Hosts, names) {
		t.Errorf("http.hosts is %q, the Services have %q", blocks.cfg.HTTP.Hosts, names)
	}
	if len(all) != 7 {
		t.Errorf("%d objects: %q", len(all), slices.Sorted(maps.Keys(all)))
	}
}

// selects says whether a selector, of a Service or with matchLabels, chooses pods with labels.
func selects(selector map[string]any, labels map[string]string) bool {
	if match, ok := selector["matchLabels"].(map[string]any); ok {
		selector = match
	}
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

// KEDA's kind is in no schema of Kubernetes. Its fields are those of KEDA's documentation, and the
// trigger looks at the group of the summarisers.
func TestDeployedScaling(t *testing.T) {
	var o struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct {
			Name   string
			Labels map[string]string
		}
		Spec struct {
			ScaleTargetRef  struct{ Name string } `yaml:"scaleTargetRef"`
			PollingInterval int                   `yaml:"pollingInterval"`
			Min             int                   `yaml:"minReplicaCount"`
			Max             int                   `yaml:"maxReplicaCount"`
			Advanced        struct {
				Config struct {
					Behavior struct {
						ScaleDown struct {
							Window int `yaml:"stabilizationWindowSeconds"`
						} `yaml:"scaleDown"`
					}
				} `yaml:"horizontalPodAutoscalerConfig"`
			}
			Triggers []struct {
				Type     string
				Metadata struct {
					Servers   string `yaml:"bootstrapServers"`
					Group     string `yaml:"consumerGroup"`
					Topic     string
					Threshold string `yaml:"lagThreshold"`
					Reset     string `yaml:"offsetResetPolicy"`
				}
			}
		}
	}
	if err := yaml.UnmarshalWithOptions([]byte(readFile(t, kubernetes, "keda.yaml")), &o, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	rows := readStage(t, manifests(t), "Deployment/"+o.Spec.ScaleTargetRef.Name)
	_, to, _ := strings.Cut(rows.Args[1], "--to=")
	if err := (&summariseCmd{To: to}).check(rows.cfg); err != nil {
		t.Fatal(err)
	}
	if o.APIVersion != "keda.sh/v1alpha1" || o.Kind != "ScaledObject" || o.Spec.Min < 1 || o.Spec.Max <= o.Spec.Min || len(o.Spec.Triggers) != 1 {
		t.Fatalf("%+v", o)
	}
	trigger := o.Spec.Triggers[0].Metadata
	if o.Spec.Triggers[0].Type != "kafka" || trigger.Servers != strings.Join(rows.cfg.Kafka.Brokers, ",") ||
		trigger.Group != rows.cfg.Kafka.Group || trigger.Topic != rows.cfg.Kafka.Topic || trigger.Reset != string(rows.cfg.Kafka.Start) {
		t.Errorf("%+v for the group %s of %s at %q", trigger, rows.cfg.Kafka.Group, rows.cfg.Kafka.Topic, rows.cfg.Kafka.Brokers)
	}
	if n, err := strconv.Atoi(trigger.Threshold); err != nil || n < 1 {
		t.Errorf("a threshold of %s", trigger.Threshold)
	}
}

// kubernetes-validate has the schemas of Kubernetes.
func TestDeployedManifestsFitTheirSchemas(t *testing.T) {
	validator, err := exec.LookPath("kubernetes-validate")
	if err != nil {
		if os.Getenv("STREAMD_REQUIRE_PROGRAMS") != "" {
			t.Fatal("STREAMD_REQUIRE_PROGRAMS is set: ", err)
		}
		t.Skip("not checked by the schemas of Kubernetes: ", err)
	}
	files, err := filepath.Glob(filepath.Join(kubernetes, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == "keda.yaml" })
	out, err := exec.Command(validator, append([]string{"--strict"}, files...)...).CombinedOutput()
	if err != nil || bytes.Count(out, []byte(" passed for resource ")) != len(manifests(t)) {
		t.Errorf("kubernetes-validate: %v\n%s", err, out)
	}
}

// Rows go through both stages, with the arguments, variables and files of the manifests. Only
// addresses and folders are others.
func TestDeployedStagesLearn(t *testing.T) {
	broker, err := embedded.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	all := manifests(t)
	rows, blocks := readStage(t, all, "Deployment/streamd-summarise"), readStage(t, all, "StatefulSet/streamd")
	cluster := kafka.Cluster{Brokers: []string{broker.Addr()}, ClientID: "test"}
	if err := kafka.EnsureTopic(t.Context(), cluster, blocks.cfg.Retire.Topic, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mail, tokens := filepath.Join(dir, "mail.csv"), filepath.Join(dir, "tokens")
	text := "label,length,capitals\n" + strings.Repeat("spam,310,41\nham,12,0\nham,48.5,3\nspam,99,60\n", 100)
	for file, text := range map[string]string{mail: text, tokens: "test read+predict a-secret-of-sixteen\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"replay", "file", mail, "--brokers", broker.Addr(), "--topic", rows.cfg.Kafka.Topic, "--block-rows", "40"}, nil, strings.NewReader(""), &out, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}

	var logs lockedBuffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, s := range []stage{rows, blocks} {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		address := "127.0.0.1:" + port
		args := append(slices.Clone(s.Args), "--kafka.brokers", broker.Addr(), "--http.listen", address, "--http.tokens_file", tokens)
		if s.Args[0] == "run" {
			args = append(args, "--snapshot.file", filepath.Join(dir, "streamd.db"))
		}
		go func() { ended <- run(ctx, args, s.env, strings.NewReader(""), io.Discard, &logs) }()
		for _, p := range []*probe{s.StartupProbe, s.LivenessProbe, s.ReadinessProbe} {
			if p == nil {
				continue
			}
			if p.HTTPGet.Port != "http" {
				t.Errorf("%s: a probe of the port %s", s.Metadata.Name, p.HTTPGet.Port)
			}
			for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
				answer, err := http.Get("http://" + address + p.HTTPGet.Path)
				status := 0
				if err == nil {
					status = answer.StatusCode
					answer.Body.Close()
				}
				if status == http.StatusOK { // a topic of blocks is there when the first stage is ready
					break
				} else if status == http.StatusNotFound || time.Now().After(deadline) {
					t.Fatalf("%s: %s answers %d, %v\n%s", s.Metadata.Name, p.HTTPGet.Path, status, err, logs.String())
				}
			}
		}
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
