"""libsvm's solution of the hinge program of TestLIBSVM: pip install libsvm-official numpy; python3 alpha.py > libsvm.json

The rows are drawn by oracle_test.go, from the same generator.
"""
import json
import numpy as np
from libsvm.svmutil import svm_parameter, svm_problem, svm_train


class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
        z = (z ^ z >> 27) * 0x94D049BB133111EB & (2**64 - 1)
        return ((z ^ z >> 31) >> 11) / 2**53


r = SplitMix(2)
A = np.array([[2 * r.uniform() - 1 for _ in range(10)] for _ in range(400)])
d = np.array([1.0 if a[0] + a[1] - a[2] + r.uniform() - 0.5 > 0 else -1.0 for a in A])
A = np.floor(64 * A) / 64  # so that kernel values are exact in libsvm's single precision
model = svm_train(svm_problem(d, A), svm_parameter("-s 0 -t 0 -c 2 -e 1e-12 -q"))
alpha = np.zeros(400)
for i, c in zip(model.get_sv_indices(), model.get_sv_coef()):
    alpha[i - 1] = abs(c[0])
w = A.T @ (alpha * d)
gamma = model.rho[0] * model.get_labels()[0]
objective = w @ w / 2 + 2 * np.maximum(0, 1 - d * (A @ w - gamma)).sum()
print(json.dumps({"libsvm": "3.37", "objective": objective, "gamma": gamma, "alpha": alpha.tolist()}))
