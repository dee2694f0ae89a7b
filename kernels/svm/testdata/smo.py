# Rewrites smo.json with LIBSVM's optima (made with libsvm-official 3.37.0, Python 3.11):
#
#     go test ./kernels/svm -run LIBSVM -write /tmp && python3 smo.py /tmp
#
# The objective is of LIBSVM's dual variables and a kernel in float64: LIBSVM's own has
# float32's rounding.

import json
import re
import sys

import numpy as np
from libsvm import svmutil

with open("smo.json") as f:
    optima = json.load(f)
for o in optima:
    table = np.loadtxt(f"{sys.argv[1]}/{o['seed']}.csv", delimiter=",")
    y, x = table[:, 0], table[:, 1:]
    p = [float(v) for v in re.findall(r"=([\d.]+)", o["kernel"])]
    if o["kernel"] == "linear":
        option, k = "-t 0", x @ x.T
    elif o["kernel"].startswith("gaussian"):
        option, k = f"-t 2 -g {p[0]}", np.exp(-p[0] * ((x[:, None] - x[None]) ** 2).sum(-1))
    else:
        option, k = f"-t 1 -g {p[0]} -r {p[1]} -d {int(p[2])}", (p[0] * (x @ x.T) + p[1]) ** int(p[2])
    model = svmutil.svm_train(svmutil.svm_problem(y.tolist(), x.tolist()), f"-q -s 0 {option} -c {o['nu']} -e 1e-9")
    i = np.array(model.get_sv_indices()) - 1
    w = np.array([c[0] for c in model.get_sv_coef()])
    o["objective"] = float(f"{np.abs(w).sum() - w @ k[np.ix_(i, i)] @ w / 2:.10g}")
    o["support_vectors"] = len(i)
with open("smo.json", "w") as f:
    f.write("[\n" + ",\n".join("  " + json.dumps(o) for o in optima) + "\n]\n")
