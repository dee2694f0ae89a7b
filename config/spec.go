package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"streamd/ingest/wire"
	"streamd/kernels/reduce"
)

// Spec says what is learned, and from which rows. A daemon has it from its keys, streamd fit from
// its flags, and both ask Check what goes with what.
type Spec struct {
	Blocks Blocks `key:"blocks"`
	Format Format `key:"format"`
	Limits Limits `key:"limits"`
	Model  Model  `key:"model"`
	Sample Sample `key:"sample"`
	Kernel Kernel `key:"kernel"`
}

// DefaultSpec is that of a daemon without any key.
func DefaultSpec() Spec { return newLoader().config.Spec }

// Fault is a value of a Spec that does not go with others.
type Fault struct {
	Key    string
	Value  string // empty for a list or a map
	format string
	args   []any // others among them
}

// other is a key that a fault is about beside its own, with a value or without.
type other struct{ key, value string }

// Text says what is wrong. name is what the reader calls a key, or a key with a value.
func (f Fault) Text(name func(key, value string) string) string {
	args := slices.Clone(f.args)
	for i, a := range args {
		if o, ok := a.(other); ok {
			args[i] = name(o.key, o.value)
		}
	}
	return fmt.Sprintf(f.format, args...)
}

// about reports whether a fault is about one of these keys beside its own.
func (f Fault) about(keys map[string]bool) bool {
	return slices.ContainsFunc(f.args, func(a any) bool { o, ok := a.(other); return ok && keys[o.key] })
}

// in returns the value of a key, and whether it is another than the default.
func (s *Spec) in(key string) (text string, set bool) {
	k := byName[key]
	v := k.in(&Config{Spec: *s})
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return "", v.Len() > 0
	}
	return formatScalar(v), !v.Equal(k.fallback)
}

// Check finds the values that do not go with others. It is the only place that says what goes
// with what.
func (s *Spec) Check() (faults []Fault) {
	m, k := &s.Model, &s.Kernel
	fault := func(is bool, key, format string, args ...any) {
		if is {
			value, _ := s.in(key)
			faults = append(faults, Fault{key, value, format, args})
		}
	}
	without := func(is, no bool, key, needed string) {
		fault(is && no, key, "needs %s, which is 0", other{needed, ""})
	}
	present := func(key string) other { value, _ := s.in(key); return other{key, value} }
	set := func(key string) bool { _, set := s.in(key); return set }

	f := &s.Format
	fault(f.Envelope == EnvelopeDebezium && s.Blocks.Unit != UnitKey, "format.envelope", "goes with %s: a change replaces or retires the block of its key", other{"blocks.unit", "key"})
	fault((f.Envelope == EnvelopeDebezium || f.Envelope == EnvelopeConnect) && f.Default != "json", "format.default", "has to be json with %s, whose rows are JSON", present("format.envelope"))
	fault(f.Envelope != EnvelopeDebezium && set("format.truncate"), "format.truncate", "goes with %s", other{"format.envelope", "debezium"})

	noFolds, noSample := m.Folds == 0, s.Sample.Rows == 0
	fault(m.Folds == 1, "model.folds", "want 0, for none, or at least 2")
	without(m.Nu == NuAuto, noFolds, "model.nu", "model.folds")
	auto := func(key string, is bool) {
		fault(is && m.Nu != NuAuto, key, "goes with %s", other{"model.nu", "auto"})
	}
	auto("model.standardise", m.Standardise == SwitchAuto)
	auto("model.balanced", m.Balanced == SwitchAuto)
	auto("model.refine", m.Refine == RefineAuto)
	auto("model.mu", m.Mu == NuAuto)
	fault(m.Balanced != SwitchOff && len(m.ClassWeights) > 0, "model.class_weights", "does not go with %s, which weighs the classes itself", present("model.balanced"))

	without(m.Refine != RefineNone && (m.Rows == RowsSample || m.Refine == RefineAuto), noSample, "model.refine", "sample.rows")
	fault(m.Refine.Program() && m.Rows == RowsLog, "model.rows", "goes with %s, full or logistic; the program of %s needs its rows in memory, as those of the sample are", other{"model.refine", "line"}, m.Refine)
	fault(m.Refine == RefineUnlabelled && s.Blocks.Unlabelled != UnlabelledKeep, "model.refine", "goes with %s, since it learns from rows without a label, too", other{"blocks.unlabelled", "keep"})
	machine := func(key string, value float64, also string, of ...Refine) {
		fault(value < 0, key, "want a number of at least 0")
		fault(value > 0 && !slices.Contains(of, m.Refine), key, "goes with %s%s, not with %s", other{"model.refine", string(of[0])}, also, m.Refine)
	}
	machine("model.machine_mu", m.MachineMu, ", features or unlabelled", RefineMinimal, RefineFeatures, RefineUnlabelled)
	machine("model.machine_epsilon", m.MachineEpsilon, "", RefineNLP)
	machine("model.machine_delta", m.MachineDelta, "", RefineNLP)

	declared := s.Format.Schema != nil
	for _, key := range []string{"format.features", "format.missing", "format.missing_features"} {
		fault(declared && set(key), key, "does not go with %s, which says it of each feature", other{"format.schema", ""})
	}

	rules := m.Knowledge != ""
	fault(!rules && set("model.mu"), "model.mu", "needs %s", other{"model.knowledge", ""})
	fault(rules && m.Method != MethodPSVM, "model.knowledge", "does not go with %s, whose planes know no rules", present("model.method"))
	fault(rules && m.Refine != RefineNone && m.Refine != RefineSparse, "model.knowledge", "does not go with %s, whose planes know no rules: use none or sparse", present("model.refine"))

	curve, byCost := m.Calibration != CalibrationAuto && m.Calibration != CalibrationNone, m.Decision == DecisionCost
	without(curve, noFolds, "model.calibration", "model.folds")
	without(curve, noSample, "model.calibration", "sample.rows")
	without(byCost, noFolds, "model.decision", "model.folds")
	without(byCost, noSample, "model.decision", "sample.rows")
	fault(byCost && len(m.Costs) == 0, "model.decision", "needs %s; with equal costs, probability is the same", other{"model.costs", ""})
	fault(!byCost && len(m.Costs) > 0, "model.costs", "goes with %s", other{"model.decision", "cost"})
	_, err := ParsePrices(m.Costs)
	fault(err != nil, "model.costs", "%v", err)

	if k.Function == KernelNone {
		for _, key := range []string{"kernel.basis", "kernel.reduce", "kernel.regulariser", "kernel.rows", "kernel.interval", "kernel.chooser", "kernel.on_retire"} {
			fault(set(key), key, "needs %s, which is none", other{"kernel.function", ""})
		}
		return faults
	}
	without(true, noSample, "kernel.function", "sample.rows")
	fault(m.Standardise == SwitchAuto, "model.standardise", "does not go with %s: features are scaled before they get to it, or not", other{"kernel.function", ""})
	const mean = "mean does not go with %s, whose values change with the mean in no linear way: use indicator or zero"
	fault(s.Format.Missing == MissingMean, "format.missing", mean, other{"kernel.function", ""})
	fault(declared && slices.Contains(slices.Collect(maps.Values(s.Format.Schema.Missing())), wire.MissingMean), "format.schema", mean, other{"kernel.function", ""})
	fault(slices.Contains(slices.Collect(maps.Values(s.Format.MissingFeatures)), MissingMean), "format.missing_features", mean, other{"kernel.function", ""})
	kernel, _ := k.Function.Kernel(1)
	indefinite, size := !kernel.Semidefinite(), k.Regulariser == RegulariserKernel
	fault(indefinite && reduce.NeedsSemidefinite(string(k.Reduce)), "kernel.reduce", "does not go with %s, which is not positive semidefinite", present("kernel.function"))
	fault(indefinite && size, "kernel.regulariser", "does not go with %s, which is not positive semidefinite: u'K(Z,Z)u is no size", present("kernel.function"))
	fault(size && m.Method != MethodPSVM, "kernel.regulariser", "does not go with %s, which has a size of its own", present("model.method"))
	fault(size && m.Refine != RefineNone && m.Refine != RefineHinge && m.Refine != RefineFull, "kernel.regulariser", "does not go with %s, which has a size of its own", present("model.refine"))
	return faults
}
