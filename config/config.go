// Package config is the one typed configuration of the daemon.
//
// A value comes from one of four places, and the later wins: the default, the
// YAML file, the environment, the flags. The struct tags of [Config] are the
// only place where a key, its default, its bounds and its explanation are
// written; the file's keys, the environment variables, the flags, the help and
// streamd.example.yaml are all read off them. The key kafka.brokers is
//
//	kafka: {brokers: [...]}    in the file
//	STREAMD_KAFKA_BROKERS      in the environment
//	--kafka.brokers            as a flag
//
// # Values
//
// In the environment and in flags a list is separated by commas and a map is
// written spam=2,ham=1; in the file they are a YAML sequence and mapping.
// Sizes take B, KB, MB, GB (powers of 1000), KiB, MiB, GiB (powers of 1024) or
// nothing for bytes; durations are those of [time.ParseDuration] and may also
// use d for 24 hours. Numbers are decimal. Relative file names are relative to
// the working directory. A variable or a flag that is present but empty counts,
// so a file's list, map or string can be emptied.
//
// The file is a plain subset of YAML: one document of at most 1 MiB, without
// anchors, aliases, tags, merge keys or directives, no key twice. A section
// with nothing below it is allowed and sets nothing.
//
// # Errors
//
// [Load] reports everything that is wrong at once, in an [*Error], also values
// that a later source overrides. An unknown key in the file is an error, and
// so is an unknown variable that starts with STREAMD_, save [FileVariable],
// [URLVariable] and those that Kubernetes sets for a service named streamd.
//
// # Secrets
//
// Passwords and tokens are never values here: a key names the file that holds
// one. Load reads it into a [Secret], which no formatting verb, encoder or
// [Config.WriteYAML] shows.
package config

import "time"

//go:generate go test -run=^(TestExample|TestBadFiles)$ . -update

// Config is a configuration that Load has checked; treat it as read-only.
type Config struct {
	Kafka           Kafka         `key:"kafka"`
	DeadLetters     DeadLetters   `key:"dead_letters"`
	Blocks          Blocks        `key:"blocks"`
	Format          Format        `key:"format"`
	Limits          Limits        `key:"limits"`
	Model           Model         `key:"model"`
	Sample          Sample        `key:"sample"`
	Kernel          Kernel        `key:"kernel"`
	Retire          Retire        `key:"retire"`
	Snapshot        Snapshot      `key:"snapshot"`
	HTTP            HTTP          `key:"http"`
	Log             Log           `key:"log"`
	Workers         int           `key:"workers" default:"0" min:"0" max:"1024" help:"Goroutines that decode and summarise blocks; the model does not depend on it. 0: as many as there are CPUs."`
	ShutdownTimeout time.Duration `key:"shutdown_timeout" default:"30s" min:"10ms" help:"Most time for a stop to apply and save pending records before it is forced."`

	origins map[string]origin
}

// Kafka says where blocks are read.
type Kafka struct {
	Brokers         []string `key:"brokers" default:"127.0.0.1:9092" help:"Addresses host:port of brokers; one that answers is enough to find the cluster."`
	Topic           string   `key:"topic" help:"Topic to learn from."`
	Group           string   `key:"group" help:"Consumer group that shares the partitions among instances. Empty: streamd.<kafka.topic>.<model.name>."`
	ClientID        string   `key:"client_id" help:"Name of this instance in the brokers' logs and quotas. Empty: streamd-<host name>."`
	Start           Start    `key:"start" default:"earliest" help:"Where to begin in a partition without a saved offset."`
	OnGap           OnGap    `key:"on_gap" default:"stop" help:"Reaction to a saved offset outside the log, or to a topic that was made anew: stop and explain, or go on there."`
	MaxMessageBytes Size     `key:"max_message_bytes" default:"64MiB" min:"1KiB" max:"1GiB" help:"Largest message, also after decompression."`
	BufferBytes     Size     `key:"buffer_bytes" default:"8MiB" min:"1KiB" max:"1GiB" help:"Fetched and unprocessed bytes per partition at which fetching pauses."`
	FetchBytes      Size     `key:"fetch_bytes" default:"4MiB" min:"1KiB" max:"1GiB" help:"Bytes per fetch."`
	TLS             TLS      `key:"tls"`
	SASL            SASL     `key:"sasl"`
}

// TLS says how to encrypt the connections to the brokers.
type TLS struct {
	Enabled    bool   `key:"enabled" default:"false" help:"Encrypt the connections to the brokers."`
	CAFile     string `key:"ca_file" help:"PEM file of the authorities to trust. Empty: the system's."`
	CertFile   string `key:"cert_file" help:"PEM file of the client certificate. Empty: none. Goes with key_file."`
	KeyFile    string `key:"key_file" help:"PEM file of the client certificate's private key."`
	ServerName string `key:"server_name" help:"Name to expect in the brokers' certificates. Empty: the host name dialled."`
}

// SASL says how to log in to the brokers.
type SASL struct {
	Mechanism    Mechanism `key:"mechanism" default:"none" help:"How to log in to the brokers."`
	Username     string    `key:"username" help:"User to log in as."`
	PasswordFile string    `key:"password_file" help:"File that holds the user's password; one line break at its end is not part of it."`

	Password Secret // the content of PasswordFile
}

// DeadLetters says how messages that cannot be used are handled.
type DeadLetters struct {
	Policy DeadLetterPolicy `key:"policy" default:"dlq" help:"Handling of a message that cannot be used: write it to the dead-letter topic, stop its partition, or skip and count it."`
	Topic  string           `key:"topic" help:"Dead-letter topic. Empty: <kafka.topic>.dlq."`
}

// Blocks says which messages make a block, the unit of retirement.
type Blocks struct {
	Unit    Unit          `key:"unit" default:"message" help:"A block is each message, a range of offsets, a span of event time, or the latest message of each key."`
	Offsets int64         `key:"offsets" default:"1000" min:"1" help:"Offsets per block when blocks.unit is offsets."`
	Period  time.Duration `key:"period" default:"1m" min:"10ms" help:"Event time per block when blocks.unit is time."`
}

// Format says how a message becomes rows.
type Format struct {
	Default   Payload   `key:"default" default:"json" help:"Format of messages without a content-type header."`
	Label     string    `key:"label" default:"label" help:"Name of the field or column that holds a row's class."`
	Weight    string    `key:"weight" help:"Name of the field or column that holds a row's weight. Empty: every row weighs 1."`
	Features  []string  `key:"features" help:"Features to learn from, in this order. Empty: the first block's, in the order of their names (x2 before x10)."`
	CSVHeader CSVHeader `key:"csv_header" default:"auto" help:"Whether CSV messages begin with a line of column names."`
}

// Limits bounds the memory that a producer can make the daemon take.
type Limits struct {
	Rows     int  `key:"rows" default:"1048576" min:"1" help:"Most rows in one block."`
	Features int  `key:"features" default:"4096" min:"1" help:"Most features; a class takes memory that grows with their square."`
	Classes  int  `key:"classes" default:"1000" min:"2" help:"Most classes."`
	Memory   Size `key:"memory" default:"0" min:"0" help:"Most memory of the process; a block that could take more is refused. 0: GOMEMLIMIT, or else a quarter of the cgroup's or the machine's."`
}

// Model says which hyperplane is wanted.
type Model struct {
	Name           string             `key:"name" default:"default" help:"Name of the model: 1 to 64 letters, digits, dots, dashes or underscores."`
	Nu             Nu                 `key:"nu" default:"1" help:"Weight ν > 0 of the errors against the size of the plane; auto: the best on held-out folds, chosen anew as rows change."`
	Balanced       bool               `key:"balanced" default:"false" help:"Weigh each side of a plane by one over its rows."`
	ClassWeights   map[string]float64 `key:"class_weights" above:"0" help:"Weights > 0 of classes; other classes have 1. Not together with model.balanced."`
	Standardise    Switch             `key:"standardise" default:"false" help:"Solve with every feature scaled to mean 0 and variance 1; auto: the better one, chosen together with model.nu: auto."`
	SolveInterval  time.Duration      `key:"solve_interval" default:"1s" min:"10ms" help:"Least time between two solves while blocks arrive."`
	Folds          int                `key:"folds" default:"5" min:"0" max:"1000" help:"Folds of the live blocks, to judge planes on held-out blocks; each has sums as large as the model's. 0: none."`
	Refine         Refine             `key:"refine" default:"none" help:"Refine planes by Newton steps, so that only rows wrong or within the margin count: along w without balance (line), or freely (full)."`
	Rows           Rows               `key:"rows" default:"sample" help:"Rows to refine on: the sample, or all live rows, read from the log again for every Newton step."`
	RefineInterval time.Duration      `key:"refine_interval" default:"10s" min:"10ms" help:"Least time between two refinements while blocks arrive."`
	Calibration    Calibration        `key:"calibration" default:"auto" help:"Curve from decision values to probabilities, fitted to held-out rows of the sample; auto: the better one, given 1000 rows."`
}

// Sample says which rows of the live blocks to keep, for work that needs rows.
type Sample struct {
	Rows     int   `key:"rows" default:"50000" min:"0" max:"100000000" help:"Rows to choose from the live blocks by hash; up to three times as many are in memory. 0: none, and no work that needs rows."`
	Seed     int64 `key:"seed" default:"1" help:"Seed of the choice. With another seed the live blocks are read from the log again."`
	Balanced bool  `key:"balanced" default:"false" help:"Choose as many rows of each class."`
}

// Kernel says whether planes are in the coordinates K(x, Z) of a basis Z of few
// points instead of the features, and how the basis is chosen from the sample.
// With model.standardise: true features are scaled on their way into the kernel.
type Kernel struct {
	Function    Function      `key:"function" default:"none" help:"gaussian (gamma of its own), gaussian(gamma=0.5), polynomial(a=1,b=1,degree=3), sigmoid(a=1,b=0), or none for planes in the features."`
	Basis       int           `key:"basis" default:"50" min:"1" max:"4096" help:"Points of the basis, at most; a class takes memory that grows with their square."`
	Reduce      Reduce        `key:"reduce" default:"kmeans" help:"How the basis is chosen: cs (chunking-synthetic), random or stratified (rows of the sample), kmeans or kmedian (centres of each class)."`
	Regulariser Regulariser   `key:"regulariser" default:"identity" help:"The quantity kept small beside the errors: the coefficients u themselves, or u'K(Z,Z)u (kernel)."`
	Rows        int64         `key:"rows" default:"1000" min:"0" help:"Live rows at which the first basis is chosen. 0: only on demand."`
	Interval    time.Duration `key:"interval" default:"0s" min:"0s" help:"Time after which another basis is chosen, if the live rows have changed. 0: only on demand."`
	OnRetire    OnRetire      `key:"on_retire" default:"reduce" help:"After the retirement of a block that the basis was chosen from: choose another at once, or keep this one, which may show its rows."`
	Unread      Unread        `key:"unread" default:"wait" help:"When the log lacks live blocks that a new basis needs: keep the old basis until they are retired (wait), or retire them (skip)."`
}

// Retire says which blocks stay live. Of Blocks, Rows and Age the one that Keep
// names is set, and the others are 0.
type Retire struct {
	Keep      Keep          `key:"keep" default:"all" help:"Which blocks to keep: all, or the last by number of blocks, number of rows, or age in event time."`
	Blocks    int           `key:"blocks" default:"0" min:"0" help:"Blocks to keep; set exactly when retire.keep is blocks."`
	Rows      int64         `key:"rows" default:"0" min:"0" help:"Rows to keep; set exactly when retire.keep is rows."`
	Age       time.Duration `key:"age" default:"0s" min:"0s" help:"Oldest event time to keep, counted back from the newest; set exactly when retire.keep is age."`
	MaxFuture time.Duration `key:"max_future" default:"5m" min:"0s" help:"Most time by which a record counts as later than its partition's clock, the third-latest event time of the last 16 records."`
}

// Snapshot says where and how often the state is saved. A save happens when
// either bound is reached, and at shutdown.
type Snapshot struct {
	File     string        `key:"file" default:"streamd.db" help:"File that holds the state, the live blocks and the offsets."`
	Interval time.Duration `key:"interval" default:"1s" min:"10ms" help:"Most time between a change and its save; longer while blocks come, so that saving takes at most a twentieth of the time."`
	Blocks   int           `key:"blocks" default:"100" min:"1" help:"Most blocks between two saves, likewise."`
	Scrub    time.Duration `key:"scrub" default:"1h" min:"0s" help:"Most time from an explicit retirement to the compaction of the file, which removes its remains. 0: only on demand."`
	KeyFile  string        `key:"key_file" help:"File of a secret of 16 bytes or more; a snapshot that was changed without it is refused. Empty: none."`
}

// HTTP says how the model is served, and to whom.
type HTTP struct {
	Listen         string   `key:"listen" default:"127.0.0.1:8080" help:"Address host:port to serve on; an empty host is every interface, port 0 is any free one."`
	Open           bool     `key:"open" default:"false" help:"Serve on an address that others can reach without http.tokens_file and http.tls.client_ca_file."`
	TokensFile     string   `key:"tokens_file" help:"File of bearer tokens, a line NAME ROLES TOKEN each, as in: ops admin 9f86d081884c7d65. Read again when it changes."`
	Anonymous      Roles    `key:"anonymous" help:"Roles of callers without token and certificate. Empty: none where tokens_file or client_ca_file is set, else all."`
	Hosts          []string `key:"hosts" help:"Host names that requests may carry, besides localhost and, where http.listen is not loopback, IP addresses."`
	CORSOrigins    []string `key:"cors_origins" help:"Origins of web pages that may call, such as https://board.example; pages of other origins may not."`
	MaxBodyBytes   Size     `key:"max_body_bytes" default:"16MiB" min:"1KiB" max:"1GiB" help:"Largest request body, also after decompression."`
	MaxRows        int      `key:"max_rows" default:"100000" min:"1" help:"Most rows in one prediction request."`
	MaxConnections int      `key:"max_connections" default:"0" min:"0" max:"1000000" help:"Most open connections. 0: half of the file descriptors that the process may open, at most 1024."`
	ReadyLag       int64    `key:"ready_lag" default:"10000" min:"0" help:"Pending records, over all partitions, at which /readyz first answers 200; more later do not matter."`
	TLS            HTTPTLS  `key:"tls"`
}

// HTTPTLS says how to encrypt HTTP and which client certificates have roles. The
// files are read again when they change.
type HTTPTLS struct {
	CertFile     string           `key:"cert_file" help:"PEM file of the daemon's certificate chain. Empty: HTTP is not encrypted. Goes with key_file."`
	KeyFile      string           `key:"key_file" help:"PEM file of the certificate's private key."`
	ClientCAFile string           `key:"client_ca_file" help:"PEM file of the authorities whose client certificates are accepted. Empty: none. Goes with clients."`
	Clients      map[string]Roles `key:"clients" help:"Roles by the name in a client certificate, its common name or a DNS name, as in: board.example=read+predict."`
}

// AnonymousRoles are the roles of callers that show neither token nor certificate.
func (h HTTP) AnonymousRoles() Roles {
	if h.Anonymous == "" && h.TokensFile == "" && h.TLS.ClientCAFile == "" {
		return allRoles
	}
	return h.Anonymous
}

// Log says which lines are logged, and in which form.
type Log struct {
	Level  Level     `key:"level" default:"info" help:"Least severe level that is logged."`
	Format LogFormat `key:"format" default:"auto" help:"Log lines for people or for machines; auto is console on a terminal and json elsewhere."`
}

// origin says where a value came from.
type origin struct {
	Source       string // file name, variable, or flag with its dashes; empty: the default
	Line, Column int    // 1-based, in a file only
}

// Secret is a text that is kept out of logs and dumps.
type Secret struct{ text string }

// Reveal returns the text.
func (s Secret) Reveal() string { return s.text }

// String hides the text.
func (s Secret) String() string {
	if s.text == "" {
		return ""
	}
	return "[secret]"
}

// GoString hides the text from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the text from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
