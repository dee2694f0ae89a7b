// Package bench measures streamd and reports what it measured.
//
// A figure without its baseline says more about the machine and its other
// tenants than about the program. So a case runs beside its baselines in one
// process, alternately: A B C, A B C, …, after one run of each to warm up
// (pages, caches, clock rates). What is reported of a figure is the median of
// its rounds, and a ratio is the median of the ratios within a round, whose
// parts have seen the same machine.
//
// # Output
//
// A Report writes each Result as a line in the format of Go's benchmarks,
//
//	BenchmarkGram/features=10/type=float32/threads=1-2  410  612345 ns/op  6.1 ns/row  1.3 read-ratio
//
// which benchstat reads; and all of them as one JSON object in the end, with
// the parameters and the figures side by side in one object per case:
//
//	{"results":[{"benchmark":"gram","features":10,"type":"float32","threads":1,"rounds":5,"ns_per_row":6.1,"read_ratio":1.3},…]}
//
// A read_ratio, copy_ratio, write_ratio or http_ratio is the case's time over
// that of a baseline that moves the same bytes and does nothing with them: 1 is
// perfect, more is worse. A drain_ratio and a peak_share are shares of such a
// baseline's rate: 1 is perfect, less is worse. Ratios to another way to do the
// same (purego_ratio, gonum_ratio, encoding_json_ratio, …) are speed-ups, the
// other way's time over the case's: more is better. A background_ratio is the share
// of the daemon's rate that background work leaves it, and cores_lost what that is
// in cores: see [Background].
package bench
