// Package kafka brings records from a Kafka topic to a Sink, in order and without loss,
// reads old records again, sends dead letters, and produces replays. It does not know the
// meaning of a record.
//
// # Promises
//
// For every partition that this process reads, Sink.Deliver gets each committed record from
// the starting position on exactly once per process, in offset order, with the bytes that
// the broker's checksum vouches for. In particular:
//
//   - No record is skipped silently. Offsets may be missing inside the log (compaction,
//     transaction markers, aborted data), which is normal. A position outside the log is an
//     error (*GapError), unless Config.OnGap says how to go on. Then the Sink's Jumped is
//     called before anything else is delivered.
//   - A topic that was deleted and made anew is noticed. The last record read, which may be
//     a transaction's marker, is read again and compared with its Fingerprint, whenever a
//     partition is taken up, and after a fetch that failed or took long. A topic that lacks
//     a partition that was read is another one, too. A record that has been compacted away
//     proves nothing: a longer log then passes for the same.
//   - Aborted transactions, open transactions and control records are kept out.
//   - A record batch with a wrong CRC-32C is fetched again a few times. Then Run ends with
//     an error that names the partition and the offset.
//   - A peer never decides how much memory is taken. Responses, record batches (as sent and
//     decompressed), counts and lengths are bounded before memory is allocated for them.
//   - A producer cannot end Run. A record batch beyond the limits, or one with a right
//     checksum and a wrong encoding, is handed over as a refused stretch of offsets
//     (Refused). A record of more than 16,384 headers comes without them
//     (Record.OmittedHeaders).
//   - Data from other members of a group is checked before kafka-go reads it. An
//     impossible assignment is an error of joining, and joining is tried again.
//   - After lost connections, restarts of brokers and moves of leaders, everything is tried
//     again for ever, with a pause between attempts and a line in the log.
//   - A broker that does not answer is abandoned as soon as another one leads the partition
//     or coordinates the group. A broker that is cut off from the others is not believed
//     about the time since. Any discovered broker is asked, so the configured ones may die.
//
// # Positions
//
// A consumer reads all partitions of its topic, as long as there are, whoever else reads them:
// so nothing that another process does, and no session that has to expire, keeps it from its
// records. With Config.Shared it is a member of a group instead, which divides the partitions
// among its members. That is for work without a state, whose results go back to Kafka.
//
// The position that the Sink has saved wins. Without one, Config.Start decides. Offsets are
// committed to the group for lag monitors and never read. After a rebalance a process
// continues at its own delivered position.
//
// # Memory
//
// A Batch is a view of pooled buffers. From the moment that Deliver returns nil it belongs
// to the receiver, until Batch.Release. The bytes of all such batches count against the
// partition's budget (Config.BufferBytes), and fetching pauses when it is used up. A single
// record batch larger than the budget is admitted when nothing else of its partition is
// outstanding. So peak memory per partition is the budget plus one record batch, as sent
// and, when it is compressed, decompressed. Small records take more memory than their
// bytes. They are decoded as they are delivered, in batches of at most 1,024.
//
// # Reading again
//
// A RangeReader reads ranges of offsets once more. It fetches, checks and decodes with the
// Consumer's code, but belongs to no group and saves nothing, so it disturbs neither
// positions nor members. Offsets missing from the log are an answer here, not an error:
// Read returns the ranges outside the log, and compacted offsets show in the batches.
//
// # Failure
//
// Run ends with an error when one partition cannot continue. It does not go on with the
// others. A process that goes on while one of its partitions stands still looks healthy.
//
// # Use of segmentio/kafka-go
//
// kafka-go does membership (ConsumerGroup), pools of connections, metadata and administration.
// Cluster.dial opens the connections, with TLS and with the login of package login. Fetch and
// produce requests go through kafka-go's Transport but are encoded by package protocol, and
// records are decoded here, because kafka-go's own decoder
//
//   - drops the end offset of a record batch, so that a batch whose last records were
//     compacted away is fetched for ever,
//   - drops the list of aborted transactions,
//   - allocates by counts and lengths in the data, and decompresses without a limit,
//   - copies every value.
//
// Its encoder cannot number batches, and without numbers a retried produce request may
// write its records twice.
//
// # The path of a record
//
// Consumer.Run serves all partitions, or those that a group assigns. For each one,
// partition.fetchAll calls fetcher.fetch, which gets a response through package protocol. A
// splitter checks and decodes its record batches into Batches. pump queues these for
// partition.deliver, which calls Sink.Deliver.
package kafka
