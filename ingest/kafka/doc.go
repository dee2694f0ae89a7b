// Package kafka brings records from a Kafka topic to a Sink, in order and
// without loss, reads old records again, sends dead letters, and produces
// replays. It knows nothing of what a record means.
//
// # What is promised
//
// For every partition that this process owns, Sink.Deliver gets each committed
// record from the starting position on exactly once per process, in offset
// order, with the bytes that the broker's checksum vouches for. Concretely:
//
//   - A record is never skipped silently. Offsets may be missing inside the log
//     (compaction, transaction markers, aborted data), which is normal; a
//     position outside the log is an error (*GapError) unless Config.OnGap says
//     how to go on, and then the Sink is told before anything else is delivered.
//   - A topic that was deleted and made anew is noticed: the last record read,
//     which may be a transaction's marker, is read again and compared with its
//     Fingerprint, whenever a partition is taken up, and after a fetch that failed
//     or took long. A topic without a partition that was read is another one. A
//     record that has been compacted away proves nothing: a longer log is then
//     taken for the same.
//   - Aborted transactions, open transactions and control records are kept out.
//   - A record batch whose CRC-32C is wrong is fetched again a few times; then
//     Run ends with an error that names the partition and the offset.
//   - Nothing that a peer sends decides how much memory is taken: responses,
//     record batches (as sent and decompressed), counts and lengths are bounded
//     before they are believed.
//   - Nothing that a producer sends ends Run. A record batch beyond the limits, or
//     one that is not encoded as it should be behind a right checksum, is handed
//     over as a refused stretch of offsets (Refused). A record of more than 16,384
//     headers comes without them (Record.OmittedHeaders).
//   - What other members of the group send is read before kafka-go sees it
//     (groupConn): assignments that cannot be are an error of joining, which is
//     tried again.
//   - Lost connections, restarting brokers and moving leaders are retried for
//     ever, with a pause between attempts and a line in the log.
//   - A broker that does not answer is left as soon as another one leads the
//     partition or coordinates the group, and one that is cut off from the others
//     is not believed about what came after its time. Any broker discovered is
//     asked, so that the ones configured may die later.
//
// # Positions
//
// What the Sink has saved wins; where it has saved nothing, Config.Start
// decides. The offsets committed to the group are written for lag monitors and
// never read: a group moves partitions between processes, but a saved state
// stays with its process. Over a rebalance the process's own delivered position
// is used.
//
// # Memory
//
// A Batch is a view of pooled buffers. It belongs to the receiver from the
// moment Deliver returns nil until Batch.Release; the bytes of all such batches
// count against the partition's budget (Config.BufferBytes), and fetching
// pauses when it is used up. A single record batch larger than the budget is
// admitted when nothing else of its partition is outstanding. Peak memory per
// partition is therefore the budget plus one record batch as sent and, when it
// is compressed, decompressed. Records themselves, which take more than the bytes
// of small ones, are read as they are delivered, in batches of at most 1,024.
//
// # Reading again
//
// A RangeReader reads ranges of offsets once more. It fetches, checks and splits
// as a Consumer does, with the same code, but belongs to no group and saves
// nothing, so neither positions nor the group's members are disturbed. What the
// log does not hold any more is an answer here and not an error: which offsets
// the log does not reach is returned, and what was compacted within it shows in
// the batches.
//
// # Failure
//
// Run ends with an error when one partition cannot go on. It does not carry on
// with the others: a member that keeps its heartbeat while one of its
// partitions stands still looks healthy, and nobody else may read that
// partition.
//
// # Use of segmentio/kafka-go
//
// kafka-go does membership (ConsumerGroup), connections, TLS, SASL, metadata and
// administration. Fetch and produce requests travel through its Transport but
// are encoded here (wire.go, recordbatch.go), because its own decoder
//
//   - drops the end offset of a record batch, so that a batch whose last records
//     were compacted away is fetched for ever,
//   - drops the list of aborted transactions,
//   - allocates what counts and lengths in the data claim, and decompresses
//     without a limit,
//   - copies every value, and its encoder cannot number batches, without which a
//     retried produce request may write its records twice.
package kafka
