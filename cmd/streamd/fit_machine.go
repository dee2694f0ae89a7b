package main

import "streamd/kernels/svm"

// machineFlags are the parameters of machines that planes are refined by. 0: the usual ones.
type machineFlags struct {
	MachineMu      float64 `placeholder:"MU" help:"Parameter μ of --refine minimal (128), features (0.25) and unlabelled (as much as makes the rows without a label weigh half of those with one): a larger one uses fewer support vectors and points of a kernel, fewer features, or heeds rows without a label more."`
	MachineEpsilon float64 `placeholder:"EPSILON" help:"Parameter ε of --refine nlp (0.1): below some ε the planes are those of sparse, and a larger one shrinks them."`
	MachineDelta   float64 `placeholder:"DELTA" help:"Parameter δ of --refine nlp (1e-5), which damps its Newton steps."`
	Tolerance      float64 `placeholder:"TOLERANCE" help:"Violation of the optimality conditions that the support vector machine of a full kernel may end with (0.001, as in LIBSVM). The report says how far from the minimum it may be."`
}

func (c *machineFlags) settings() svm.Settings {
	return svm.Settings{Mu: c.MachineMu, Epsilon: c.MachineEpsilon, Delta: c.MachineDelta}
}
