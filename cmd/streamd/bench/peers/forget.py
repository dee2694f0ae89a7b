"""Taking rows out of a proximal SVM, in four ways.

The file has float32 columns of the features, then of the labels. The first block is retired
to warm up, the second alone, and then the rest of the first half. Prints one JSON object:

    {"version": "2.1", "one": {"seconds": 1e-4, "digits": 0, "share": 1, "gone": 20, "plane": [...]}, "half": {...}}

digits compares the plane with the same tool's fit of the rows that are left, those from number
gone on. plane is w and then gamma. It is missing where the tool has failed.
"""

import argparse
import importlib.metadata
import json
import math
import time


class Subtract:
    """E'E and E'De, less those of the rows that go."""

    def version(self):
        import numpy

        return numpy.__version__

    def fit(self, e, d, nu):
        import numpy

        self.ee = e @ e.T + numpy.eye(len(e)) / nu
        self.ed = e @ d

    def forget(self, e, d, left):
        self.ee -= e @ e.T
        self.ed -= e @ d
        return e.shape[1]

    def plane(self):
        import numpy

        return numpy.linalg.solve(self.ee, self.ed)


class Downdate(Subtract):
    """The Cholesky factor of I/nu + E'E, less each row that goes."""

    def fit(self, e, d, nu):
        import numpy

        super().fit(e, d, nu)
        self.r = numpy.linalg.cholesky(self.ee).T.copy()

    def forget(self, e, d, left):
        import numpy

        r, n = self.r, len(e)
        for i in range(e.shape[1]):
            if i % 1024 == 0 and left() < 0:
                return i
            x = e[:, i].copy()
            for k in range(n):
                pivot = r[k, k] * r[k, k] - x[k] * x[k]
                if not pivot > 0:
                    raise ArithmeticError("no longer positive definite")
                root = math.sqrt(pivot)
                c, s = root / r[k, k], x[k] / r[k, k]
                r[k, k] = root
                r[k, k + 1:] = (r[k, k + 1:] - s * x[k + 1:]) / c
                x[k + 1:] = c * x[k + 1:] - s * r[k, k + 1:]
            self.ed -= e[:, i] * d[i]
        return e.shape[1]

    def plane(self):
        import numpy

        return numpy.linalg.solve(self.r, numpy.linalg.solve(self.r.T, self.ed))


class Slide:
    """A rolling ridge regression, which adds a row and subtracts the oldest one.

    The window comes to its place at the last row by as many steps as rows are to go. Each
    step has its plane. There is no state between calls: each begins with the sums of the
    window's first place.
    """

    def version(self):
        import polars_ols

        return importlib.metadata.version("polars_ols")

    def fit(self, e, d, nu):
        import polars

        self.rows = polars.DataFrame({**{f"e{j}": row for j, row in enumerate(e)}, "d": d})
        self.window, self.nu = len(d), nu

    def forget(self, e, d, left):
        gone, trial = e.shape[1], 10000
        if gone > trial:
            # A call cannot be stopped, so a short one tells how long it will take.
            began = time.perf_counter()
            self.slide(self.rows[: 2 * trial], trial)
            gone = min(gone, max(trial, int(left() / (time.perf_counter() - began) * trial)))
        self.window -= gone
        return gone

    def slide(self, rows, window):
        import polars_ols

        settings = polars_ols.RollingKwargs(window_size=window, min_periods=window, alpha=1 / self.nu, null_policy="drop")
        planes = rows.select(z=polars_ols.compute_rolling_least_squares(
            "d", *rows.columns[:-1], mode="coefficients", rolling_kwargs=settings))
        return list(planes["z"][-1].values())

    def plane(self):
        import numpy

        z = self.slide(self.rows, self.window)
        self.rows = self.rows[-self.window:]
        return numpy.array(z)


class Refit:
    """A new fit of what is left."""

    def version(self):
        import sklearn

        return sklearn.__version__

    def fit(self, e, d, nu):
        from sklearn.linear_model import Ridge

        self.e, self.d, self.nu = e, d, nu
        self.ridge = Ridge(alpha=1 / nu, fit_intercept=False, solver="cholesky")
        self.z = self.ridge.fit(e.T, d).coef_

    def forget(self, e, d, left):
        rows = e.shape[1]
        self.fit(self.e[:, rows:], self.d[rows:], self.nu)
        return rows

    def plane(self):
        return self.z


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["subtract", "downdate", "slide", "refit"])
    parser.add_argument("file")
    parser.add_argument("--features", type=int, required=True)
    parser.add_argument("--blocks", type=int, required=True)
    parser.add_argument("--block-rows", type=int, required=True)
    parser.add_argument("--nu", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    tool = {"subtract": Subtract, "downdate": Downdate, "slide": Slide, "refit": Refit}[args.mode]()
    try:
        version = tool.version()
        import numpy
    except ImportError as missing:
        print(json.dumps({"missing": missing.name or str(missing)}))
        return
    n, m = args.features, args.blocks * args.block_rows
    columns = numpy.fromfile(args.file, dtype="<f4").reshape(n + 1, m)
    e = numpy.empty((n + 1, m))  # E' = [A -e]'
    e[:n], e[n] = columns[:n], -1
    d = columns[n].astype(float)
    del columns

    def forget(first, end):
        began = time.perf_counter()
        try:
            done = tool.forget(e[:, first:end], d[first:end], lambda: began + args.seconds - time.perf_counter())
            z = tool.plane()
        except ArithmeticError:
            return {"seconds": time.perf_counter() - began, "digits": -math.log10(2**-52), "share": 1}
        seconds = time.perf_counter() - began
        other = type(tool)()
        other.fit(e[:, first + done:], d[first + done:], args.nu)
        want = other.plane()
        far = float(abs(z - want).max() / abs(want).max()) if numpy.isfinite(z).all() else 1.0
        digits = math.log10(far / 2**-52) if far > 0 else 0
        return {
            "seconds": seconds, "digits": min(max(digits, 0), -math.log10(2**-52)), "share": done / (end - first),
            "gone": first + done, "plane": z.tolist() if numpy.isfinite(z).all() else [],
        }

    rows = args.block_rows
    tool.fit(e, d, args.nu)
    forget(0, rows)  # to warm up
    one = forget(rows, 2 * rows)
    half = forget(2 * rows, args.blocks // 2 * rows)
    print(json.dumps({"version": version, "one": one, "half": half}))


if __name__ == "__main__":
    main()
