"""scikit-learn's SGDClassifier.partial_fit behind a StandardScaler."""

import peer


def tool(_):
    import pyarrow  # noqa: F401
    import sklearn

    return sklearn.__version__


def learn(args, clock):
    import numpy
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import StandardScaler

    scaler, classifier = StandardScaler(), SGDClassifier(random_state=1)
    rows = 0
    for batch in peer.batches(args.train):
        x, y = peer.arrays(batch)
        x = numpy.ascontiguousarray(x.T)
        with clock:
            scaler.partial_fit(x)
            classifier.partial_fit(scaler.transform(x), y, classes=[-1, 1])
        rows += len(y)
        if clock.is_over():
            break
    w = classifier.coef_[0] / scaler.scale_
    return rows, w, w @ scaler.mean_ - classifier.intercept_[0]


if __name__ == "__main__":
    peer.main(tool, learn)
