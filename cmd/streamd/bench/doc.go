// Package bench measures streamd beside baselines.
//
// A figure without its baseline says more about the machine and its other tenants than
// about the program. So a case and its baselines run in one process, alternately: A B C,
// A B C, …, after one round to warm up pages, caches and clock rates. A figure is the
// median of the rounds. A ratio is the median of the ratios within a round, because its
// parts have seen the same machine.
//
// # Output
//
// A [Run] writes each [Result] as a line in the format of Go's benchmarks, which benchstat
// reads:
//
//	BenchmarkGram/features=10/type=float32/threads=1-2  410  612345 ns/op  6.1 ns/row  1.3 read-ratio
//
// At the end it writes all of them as one JSON object, with an object of parameters and
// figures for each case:
//
//	{"results":[{"benchmark":"gram","features":10,"type":"float32","threads":1,"rounds":5,"ns_per_row":6.1,"read_ratio":1.3},…]}
//
// A read_ratio, copy_ratio, write_ratio or http_ratio is the time of the case over that of a
// baseline that moves the same bytes and does nothing with them: 1 is perfect, more is
// worse. A drain_ratio and a peak_share are shares of such a baseline's rate: 1 is perfect,
// less is worse. A ratio to another way to do the same (purego_ratio, gonum_ratio,
// encoding_json_ratio, …) is a speed-up, the other way's time over the case's: more is
// better. A background_ratio is the share of the daemon's rate that background work leaves,
// and cores_lost is the rest in cores: see [Background].
package bench
