"""The script that people write today: a consumer that feeds the numpy loop."""

import time
import uuid

import numpy_gram
import peer


def tool(args):
    import confluent_kafka

    return f"{confluent_kafka.__version__}, numpy {numpy_gram.tool(args)}"


def learn(args, clock):
    import confluent_kafka
    import pyarrow
    import pyarrow.ipc

    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": args.brokers,
        "group.id": f"{args.topic}-{uuid.uuid4()}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })
    gram = numpy_gram.Gram()
    patience = 60
    try:
        # The time begins when there are partitions, as streamd's does.
        consumer.subscribe([args.topic], on_assign=lambda *_: clock.start())
        last = time.monotonic()
        while gram.rows < args.rows and not (gram.rows and clock.is_over()):
            for message in consumer.consume(num_messages=64, timeout=1):
                if message.error():
                    raise confluent_kafka.KafkaException(message.error())
                for batch in pyarrow.ipc.open_stream(pyarrow.py_buffer(message.value())):
                    gram.add(batch)
                last = time.monotonic()
            if time.monotonic() - last > patience:
                peer.fail(f"nothing has come from {args.topic} for {patience} s")
        w, gamma = gram.solve(args.nu)
        clock.stop()
    finally:
        consumer.close()
    return gram.rows, w, gamma


if __name__ == "__main__":
    peer.main(tool, learn)
