"""oneDAL through sklearnex: incremental covariance, linear regression, ridge.

--way covariance: means and covariance of features and label, of which E'E and
E'De of the proximal SVM are made. linear, ridge: least squares of the label.
"""

import peer


def tool(_):
    import pyarrow  # noqa: F401
    import sklearnex

    return sklearnex.__version__


def learn(args, clock):
    import numpy
    from sklearnex.covariance import IncrementalEmpiricalCovariance
    from sklearnex.linear_model import IncrementalLinearRegression, IncrementalRidge

    estimator = {
        "covariance": IncrementalEmpiricalCovariance,
        "linear": IncrementalLinearRegression,
        "ridge": lambda: IncrementalRidge(alpha=1 / args.nu),
    }[args.way]()
    rows = 0
    for batch in peer.batches(args.train):
        x, y = peer.arrays(batch)
        if args.way == "covariance":
            given = (numpy.ascontiguousarray(numpy.vstack([x, y]).T),)
        else:
            given = numpy.ascontiguousarray(x.T), y.astype(float)
        with clock:
            estimator.partial_fit(*given)
        rows += len(y)
        if clock.is_over():
            break
    with clock:
        if args.way == "covariance":
            return rows, *plane(numpy.asarray(estimator.covariance_), numpy.asarray(estimator.location_), rows, args.nu)
        return rows, numpy.ravel(estimator.coef_), -float(numpy.ravel(estimator.intercept_)[0])


def plane(covariance, mean, m, nu):
    """w and gamma of (I/nu + E'E) z = E'De, E = [A -e], from the moments of [A d]."""
    import numpy

    products = m * (covariance + numpy.outer(mean, mean))
    n = len(mean) - 1
    ee = numpy.empty((n + 1, n + 1))
    ee[:n, :n] = products[:n, :n]
    ee[n, :n] = ee[:n, n] = -m * mean[:n]
    ee[n, n] = m
    z = numpy.linalg.solve(ee + numpy.eye(n + 1) / nu, numpy.append(products[:n, n], -m * mean[n]))
    return z[:-1], z[-1]


if __name__ == "__main__":
    peer.main(tool, learn)
