// Package kafkatest is the conformance suite of package kafka. It checks the promises of
// its consumer, range reader, dead letters and producer on a running broker. The same suite
// runs on the embedded broker in every go test, and on Apache Kafka.
package kafkatest
