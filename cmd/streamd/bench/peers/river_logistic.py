"""River's LogisticRegression behind its StandardScaler: --way rows, or batches."""

import peer


STEP = 500  # rows of a small batch


def tool(_):
    import pyarrow  # noqa: F401
    import river

    return river.__version__


def learn(args, clock):
    import numpy
    from river import linear_model, preprocessing

    scaler, classifier = preprocessing.StandardScaler(), linear_model.LogisticRegression()
    model = scaler | classifier
    rows = 0
    names = []
    for batch in peer.batches(args.train):
        names = batch.schema.names[1:]
        if args.way == "batches":
            frame = batch.select(names).to_pandas()
            labels = batch.column(0).to_pandas() > 0
            with clock:  # one step of the gradient each
                for i in range(0, len(labels), STEP):
                    model.learn_many(frame[i : i + STEP], labels[i : i + STEP])
            rows += batch.num_rows
            if clock.is_over():
                break
            continue
        columns = [batch.column(j + 1).to_pylist() for j in range(len(names))]
        labels = batch.column(0).to_pylist()
        with clock:
            for values, label in zip(zip(*columns), labels):
                model.learn_one(dict(zip(names, values)), label > 0)
                rows += 1
                if rows % 1000 == 0 and clock.is_over():
                    break
        if clock.is_over():
            break
    mean = numpy.array([scaler.means[name] for name in names])
    scale = numpy.sqrt([scaler.vars[name] for name in names])
    w = numpy.array([classifier.weights[name] for name in names]) / scale
    return rows, w, w @ mean - classifier.intercept


if __name__ == "__main__":
    peer.main(tool, learn)
