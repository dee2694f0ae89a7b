// Package config is the typed configuration of the daemon.
//
// A value comes from the default, the YAML file, the environment or the flags; the later
// source wins. The struct tags of [Config] are the only place for a key, its default, its
// bounds and its explanation. The file's keys, the environment variables, the flags, the
// help and streamd.example.yaml all come from them. The key kafka.brokers is
//
//	kafka: {brokers: [...]}    in the file
//	STREAMD_KAFKA_BROKERS      in the environment
//	--kafka.brokers            as a flag
//
// # Values
//
// In the environment and in flags, commas separate a list, and a map is written
// spam=2,ham=1. In the file they are a YAML sequence and mapping. Sizes take B, KB, MB, GB
// (powers of 1000), KiB, MiB, GiB (powers of 1024) or nothing for bytes. Durations are
// those of [time.ParseDuration], with d for 24 hours as well. Numbers are decimal. Relative
// file names start at the working directory. A variable or flag that is present but empty
// counts, so it can empty a list, map or string of the file.
//
// The file is a subset of YAML: one document of at most 1 MiB, without anchors, aliases,
// tags, merge keys, directives or repeated keys. An empty section is allowed and sets
// nothing.
//
// # Errors
//
// [Load] reports all problems at once in an [*Error], also those of values that a later
// source overrides. An unknown key in the file is an error. So is an unknown variable that
// starts with STREAMD_, except [FileVariable], [URLVariable] and the variables that
// Kubernetes sets for a service named streamd.
//
// # Secrets
//
// A password or token is never a value here: a key names its file. Load reads it into a
// [Secret], which no formatting verb, no encoder and no [Config.WriteYAML] shows.
package config

import (
	"errors"
	"time"

	"streamd/ingest/schema"
	"streamd/ingest/wire"
)

//go:generate go test -run=^(TestExample|TestBadFiles)$ . -update

// Config is a configuration that Load has checked; treat it as read-only.
type Config struct {
	Kafka       Kafka       `key:"kafka"`
	DeadLetters DeadLetters `key:"dead_letters"`
	Spec
	Labels          Labels        `key:"labels"`
	Retire          Retire        `key:"retire"`
	Drift           Drift         `key:"drift"`
	Snapshot        Snapshot      `key:"snapshot"`
	Receipts        Receipts      `key:"receipts"`
	Predict         Predict       `key:"predict"`
	HTTP            HTTP          `key:"http"`
	Log             Log           `key:"log"`
	Workers         int           `key:"workers" default:"0" min:"0" max:"1024" help:"Goroutines that decode and summarise blocks. The model does not depend on their number. 0: one per CPU."`
	ShutdownTimeout time.Duration `key:"shutdown_timeout" default:"30s" min:"10ms" help:"Time that a stop may take to process and save pending messages. The process is gone then, whatever hangs."`

	origins map[string]origin
}

// Kafka says where blocks come from.
type Kafka struct {
	Brokers         []string `key:"brokers" default:"127.0.0.1:9092" help:"Addresses host:port of the cluster. One that answers is enough."`
	Topic           string   `key:"topic" help:"Topic to learn from."`
	Group           string   `key:"group" help:"Name under which offsets are committed, for lag monitors. Empty: streamd.<kafka.topic>.<model.name>.<kafka.client_id>."`
	ClientID        string   `key:"client_id" help:"Name of this instance in the brokers' logs and quotas. Empty: streamd-<host name>."`
	Start           Start    `key:"start" default:"earliest" choices:"earliest|latest" help:"Where to begin in a partition without a saved offset."`
	OnGap           OnGap    `key:"on_gap" default:"stop" choices:"stop|earliest|latest" help:"Action when the saved offset is outside the log, or the topic was created again: stop and explain, or continue there."`
	MaxMessageBytes Size     `key:"max_message_bytes" default:"64MiB" min:"1KiB" max:"1GiB" help:"Largest message, also after decompression."`
	BufferBytes     Size     `key:"buffer_bytes" default:"8MiB" min:"1KiB" max:"1GiB" help:"Pending bytes of a partition at which fetching pauses."`
	FetchBytes      Size     `key:"fetch_bytes" default:"4MiB" min:"1KiB" max:"1GiB" help:"Bytes that one fetch asks a broker for."`
	TLS             TLS      `key:"tls"`
	SASL            SASL     `key:"sasl"`
}

// TLS configures encryption to the brokers.
type TLS struct {
	Enabled    bool   `key:"enabled" default:"false" help:"Encrypt the connections to the brokers."`
	CAFile     string `key:"ca_file" help:"PEM file of the trusted authorities. Empty: the system's. It is read again when it changes."`
	CertFile   string `key:"cert_file" help:"PEM file of the client certificate. Empty: none. Goes with key_file. It is read again when it changes."`
	KeyFile    string `key:"key_file" help:"PEM file of the client certificate's private key."`
	ServerName string `key:"server_name" help:"Name expected in the brokers' certificates. Empty: the host name of the address."`
}

// SASL configures the login to the brokers.
type SASL struct {
	Mechanism    Mechanism `key:"mechanism" default:"none" choices:"none|plain|scram-sha-256|scram-sha-512|oauthbearer|aws-msk-iam" help:"Method of the login to the brokers: see config/logins.md. A client certificate (kafka.tls) needs none."`
	Username     string    `key:"username" help:"User name, with plain and scram."`
	PasswordFile string    `key:"password_file" help:"File with the user's password. A line break at its end is not part of the password."`
	OAuth        OAuth     `key:"oauth"`
	AWS          AWS       `key:"aws"`

	Password Secret // the content of PasswordFile
}

// OAuth configures where bearer tokens come from, with the mechanism oauthbearer.
type OAuth struct {
	TokenFile        string            `key:"token_file" help:"File with a token that something else renews. It is read for each login. Or set token_url."`
	TokenURL         string            `key:"token_url" help:"Token endpoint for the grant client_credentials (RFC 6749). Or set token_file."`
	ClientID         string            `key:"client_id" help:"Client id at the token endpoint."`
	ClientSecretFile string            `key:"client_secret_file" help:"File with the client's secret. A line break at its end is not part of the secret."`
	Scope            string            `key:"scope" help:"Scopes to ask for, separated by spaces. Empty: the endpoint's default."`
	Audience         string            `key:"audience" help:"Parameter audience of the request for a token, which some endpoints want."`
	Parameters       map[string]string `key:"parameters" help:"Further parameters of the request for a token, such as resource=kafka."`
	CAFile           string            `key:"ca_file" help:"PEM file of the authorities trusted for the token endpoint. Empty: the system's."`
	Extensions       map[string]string `key:"extensions" help:"SASL extensions, such as logicalCluster=lkc-1 and identityPoolId=pool-1 for Confluent Cloud."`

	ClientSecret Secret // the content of ClientSecretFile
}

// AWS configures the mechanism aws-msk-iam.
type AWS struct {
	Region string `key:"region" help:"AWS region of the cluster, with aws-msk-iam. Empty: AWS_REGION or AWS_DEFAULT_REGION of the environment."`
}

// DeadLetters configures the treatment of messages that cannot be used.
type DeadLetters struct {
	Policy DeadLetterPolicy `key:"policy" default:"dlq" choices:"dlq|stop|skip" help:"Action for a message that cannot be used: write it to the dead-letter topic, end the daemon, or skip and count it."`
	Topic  string           `key:"topic" help:"Dead-letter topic. Empty: <kafka.topic>.dlq."`
}

// Blocks says which messages make a block, the unit of retirement.
type Blocks struct {
	Unit    Unit          `key:"unit" default:"message" choices:"message|offsets|time|key" help:"Content of a block: one message, a range of offsets, a span of event time, or the latest message of a key."`
	Offsets int64         `key:"offsets" default:"1000" min:"1" help:"Offsets per block when blocks.unit is offsets."`
	Period  time.Duration `key:"period" default:"1m" min:"10ms" help:"Event time per block when blocks.unit is time."`

	Unlabelled Unlabelled `key:"unlabelled" default:"reject" choices:"reject|keep" help:"Rows without a label: reject the block, or keep them. Kept rows are summed and retired like others, but change no plane."`
}

// Format says how messages are decoded to rows.
type Format struct {
	Default     string   `key:"default" default:"json" choices:"arrow|json|csv|libsvm|avro|protobuf" help:"Format of messages without a content-type header and without a frame."`
	Envelope    Envelope `key:"envelope" default:"none" choices:"none|debezium|connect|cloudevents" help:"What messages have around their rows: changes of Debezium, schema and payload of Kafka Connect, or CloudEvents. See config/changes.md."`
	Truncate    Truncate `key:"truncate" default:"stop" choices:"stop|retire|reject" help:"Action for a TRUNCATE among changes of Debezium: end the daemon, retire all blocks (of a topic with one partition), or reject the message."`
	Label       string   `key:"label" default:"label" help:"Name of the field or column with a row's class."`
	LabelSuffix string   `key:"label_suffix" help:"Text that is taken off the end of labels, such as the full stop of yes. in some files. Empty: none is."`
	Unlabelled  string   `key:"unlabelled" help:"Label that means a row has none, such as ? or -1. Empty: only null, an empty text and an absent field of JSON mean that."`
	Weight      string   `key:"weight" help:"Name of the field or column with a row's weight. Empty: every row has weight 1."`
	Features    []string `key:"features" help:"Features to learn from, in this order. Empty: the features of the first block, sorted by name (x2 before x10)."`
	// Schema is nil where columns are features as they are.
	Schema  *schema.Schema `key:"schema" help:"What features are made of columns, such as {age: number, from: {kind: category, values: [at, ch]}}, or a file with that."`
	Ignore  []string       `key:"ignore" help:"Columns that are not learned from, of any type: names or patterns, such as id or *_at. Columns without names are x1, x2, and so on."`
	Unknown Unknown        `key:"unknown" default:"auto" choices:"auto|reject|ignore" help:"Columns that are none of the features: reject the block, or ignore them. auto: ignore where format.features or format.schema is set."`
	Missing Missing        `key:"missing" default:"reject" choices:"reject|zero|mean|indicator" help:"Missing values: reject the block, or count them as 0, as the live rows' mean, or as 0 with a feature that marks them."`

	MissingFeatures map[string]Missing `key:"missing_features" choices:"reject|zero|mean|indicator" help:"Features whose missing values are treated otherwise, such as: age=indicator."`

	Registry   Registry `key:"registry" json:"-"`
	SchemaFile string   `key:"schema_file" json:"-" help:"File with the schema of Avro or Protobuf without a frame: .avsc, or what protoc --descriptor_set_out writes. See config/registry.md."`
	Message    string   `key:"message" json:"-" help:"Message of format.schema_file that is a row, with its package: shop.v1.Visit. Empty: the only one of the last file in it."`

	CSVHeader    CSVHeader    `key:"csv_header" default:"auto" choices:"auto|present|absent" help:"Whether CSV messages begin with a line of column names. auto: where their first line is the label's name or texts, not numbers."`
	CSVComment   string       `key:"csv_comment" help:"Start of lines of CSV messages that are passed over, such as #. Empty: none are."`
	CSVDecimal   CSVDecimal   `key:"csv_decimal" default:"point" choices:"point|comma" help:"Mark before the decimals of numbers in CSV messages. With comma, fields are separated by tabs, semicolons or bars."`
	CSVThousands CSVThousands `key:"csv_thousands" default:"none" choices:"none|comma|point|blank|apostrophe" help:"Mark between the thousands of numbers in CSV messages, as in 1,234,567. Groups have three digits."`
}

// Registry says where the schemas of framed messages are. It is none of a model's settings, since
// ids have the same schemas wherever they are asked for.
type Registry struct {
	URL          string      `key:"url" help:"URL of the Confluent-compatible schema registry of framed messages. Empty: those are refused. See config/registry.md."`
	Username     string      `key:"username" help:"User name for the registry. Empty: none. Goes with password_file."`
	PasswordFile string      `key:"password_file" help:"File with the user's password. A line break at its end is not part of the password."`
	TLS          RegistryTLS `key:"tls"`

	Password Secret // the content of PasswordFile
}

// RegistryTLS configures encryption to the registry, where the URL begins with https.
type RegistryTLS struct {
	CAFile     string `key:"ca_file" help:"PEM file of the authorities trusted for the registry. Empty: the system's. It is read again when it changes."`
	CertFile   string `key:"cert_file" help:"PEM file of the client certificate for the registry. Empty: none. Goes with key_file. It is read again when it changes."`
	KeyFile    string `key:"key_file" help:"PEM file of the private key of the client certificate for the registry."`
	ServerName string `key:"server_name" help:"Name expected in the registry's certificate. Empty: the host name of the URL."`
}

// Notation says how numbers are written in CSV.
func (f Format) Notation() (wire.Notation, error) {
	thousands, err := wire.ParseThousands(string(f.CSVThousands))
	n := wire.Notation{DecimalComma: f.CSVDecimal == CSVDecimalComma, Thousands: thousands}
	return n, errors.Join(err, n.Check())
}

// Limits bounds the memory that producers can make the daemon take.
type Limits struct {
	Rows     int  `key:"rows" default:"1048576" min:"1" help:"Most rows in one block."`
	Features int  `key:"features" default:"4096" min:"1" help:"Most features. The memory of a class grows with their square."`
	Classes  int  `key:"classes" default:"1000" min:"2" help:"Most classes."`
	Memory   Size `key:"memory" default:"0" min:"0" help:"Most memory of the process. A block that could take more is refused. 0: GOMEMLIMIT, or a quarter of the memory of the cgroup or machine."`
}

// Model configures the hyperplanes.
type Model struct {
	Name           string             `key:"name" default:"default" help:"Name of the model: 1 to 64 letters, digits, dots, dashes or underscores."`
	Nu             Nu                 `key:"nu" default:"1" help:"Weight ν > 0 of the errors against the size of the plane. auto: the best for the served planes on held-out folds, ever again."`
	Objective      Objective          `key:"objective" default:"accuracy" choices:"accuracy|balanced" help:"Figure of held-out rows that auto chooses by: the share classified right (accuracy), or the mean of the classes' shares (balanced)."`
	Balanced       Switch             `key:"balanced" default:"false" choices:"false|true|auto" help:"Give the rows on each side of a plane half of the weight of all rows. auto: the better of the two, chosen together with model.nu: auto."`
	ClassWeights   map[string]float64 `key:"class_weights" above:"0" help:"Weights > 0 of classes. A class without one has weight 1. Not together with model.balanced."`
	Standardise    Switch             `key:"standardise" default:"false" choices:"false|true|auto" help:"Solve with every feature scaled to mean 0 and variance 1. auto: the better of the two, chosen together with model.nu: auto."`
	Knowledge      string             `key:"knowledge" help:"YAML file of rules beside the rows, such as {when: age >= 40, then: risk}: see config/learning.md. Empty: none."`
	Mu             Nu                 `key:"mu" default:"10" help:"Weight μ > 0 of the slack of the rules of model.knowledge. auto: the best of 0.01 to 10000, chosen together with model.nu: auto."`
	SolveShare     float64            `key:"solve_share" default:"0.05" above:"0" max:"1" help:"Most of one core's time, while blocks arrive, that solves take: the next begins as soon as blocks have come and the last ones took less."`
	Folds          int                `key:"folds" default:"5" min:"0" max:"1000" help:"Folds of the live blocks, to judge planes on blocks that they were not fitted on. A fold's sums are as large as the model's. 0: none."`
	Method         Method             `key:"method" default:"psvm" choices:"psvm|means|lasso" help:"How planes are read off the sums: by least squares (psvm), also with few features (lasso), or as the difference of means (means)."`
	Refine         Refine             `key:"refine" default:"none" choices:"none|line|full|logistic|auto|hinge|sparse|minimal|features|nlp|unlabelled" help:"Newton steps by rows: along w (line), in all directions (full), of all planes (logistic), the best (auto), or see config/learning.md."`
	MachineMu      float64            `key:"machine_mu" default:"0" help:"Parameter μ of model.refine: minimal (128), features (0.25) and unlabelled. 0: the usual one."`
	MachineEpsilon float64            `key:"machine_epsilon" default:"0" help:"Parameter ε of model.refine: nlp. 0: the usual one, 0.1."`
	MachineDelta   float64            `key:"machine_delta" default:"0" help:"Parameter δ of model.refine: nlp, which damps its steps. 0: the usual one, 1e-5."`
	Rows           Rows               `key:"rows" default:"sample" choices:"sample|log" help:"Rows to refine on: those of the sample, or all live rows, read from the log again for every Newton step."`
	RefineInterval time.Duration      `key:"refine_interval" default:"10s" min:"10ms" help:"Least time between two refinements while blocks arrive."`
	Calibration    Calibration        `key:"calibration" default:"auto" choices:"auto|platt|isotonic|softmax|temperature|none" help:"Curves from values to probabilities, by held-out rows: of each plane, or of all (softmax, to 16 classes; temperature). auto: the best."`
	Decision       Decision           `key:"decision" default:"probability" choices:"probability|value|cost" help:"Rule of labels: largest probability (given a calibration), largest decision value, or least expected cost."`
	Topic          string             `key:"topic" help:"Compacted topic of the served models, as GET /v1/model answers, by model.name. It is made if it is missing. Empty: none."`
	Costs          map[string]float64 `key:"costs" above:"0" help:"Costs > 0 of answers by CLASS>ANSWER, such as fraud>ham=10; 1 for other wrong ones. With model.decision: cost."`
}

// CountsRight reports whether the model is to classify as many rows right as it can. Balanced
// classes, weights and costs ask for something else: then more rows may be right with one class for
// all, and the model may still be the better one.
func (m *Model) CountsRight() bool {
	return m.Objective != ObjectiveBalanced && m.Balanced != SwitchOn && len(m.ClassWeights) == 0 && m.Decision != DecisionCost
}

// Sample configures the sample of live rows, for tasks that need more than sums.
type Sample struct {
	Rows     int   `key:"rows" default:"50000" min:"0" max:"100000000" help:"Rows chosen from the live blocks by hash. Memory holds up to three times as many. 0: no sample, and no task that needs rows."`
	Seed     int64 `key:"seed" default:"1" help:"Seed of the choice. With another seed the live blocks are read from the log again."`
	Balanced bool  `key:"balanced" default:"false" help:"Choose equally many rows of each class."`
}

// Kernel configures planes in the coordinates K(x, Z) of a basis Z of few points instead of
// the features, and the choice of the basis from the sample. With model.standardise: true
// features are scaled before the kernel.
type Kernel struct {
	Function    Function      `key:"function" default:"none" help:"gaussian (gamma is chosen), polynomial, sigmoid, linear, one in full such as gaussian(gamma=0.5), or none for planes in the features."`
	Basis       int           `key:"basis" default:"50" min:"1" max:"4096" help:"Most points of the basis, or coordinates with eigen. The memory of a class grows with their square."`
	Reduce      Reduce        `key:"reduce" default:"kmeans" help:"Choice of the basis: kmeans, kmedian, random, stratified, lda, cholesky, slmc, rs, skfd, cs or eigen, or one with settings: cs(nu=6)."`
	Regulariser Regulariser   `key:"regulariser" default:"identity" choices:"identity|kernel" help:"Size that is minimised beside the errors: that of the coefficients u (identity), or u'K(Z,Z)u (kernel)."`
	Rows        int64         `key:"rows" default:"1000" min:"0" help:"Labelled live rows at which the first basis is chosen. 0: only on request."`
	Interval    time.Duration `key:"interval" default:"0s" min:"0s" help:"Time after which another basis is chosen, if the live rows have changed. 0: only on request."`
	Chooser     string        `key:"chooser" help:"kafka.client_id of the instance that chooses bases for all, by the control topic. Empty: each chooses, and the last basis there counts."`
	OnRetire    OnRetire      `key:"on_retire" default:"reduce" choices:"reduce|keep" help:"Action when a source block of the basis is retired: choose another basis (reduce), or keep this one, which may contain numbers of its rows."`
	Unread      Unread        `key:"unread" default:"wait" choices:"wait|skip" help:"Action when the log lacks live blocks that a new basis or other features need: wait until they are retired, or retire them (skip)."`
}

// Labels says where labels come from that come later than their rows.
type Labels struct {
	Topic   string        `key:"topic" help:"Topic of labels that come later than their rows, under the same keys: see config/labels.md. Empty: rows have their labels."`
	ID      string        `key:"id" help:"Field of a row that is its id, where keys are not. A record then has any number of rows. Empty: the key is the id."`
	Horizon time.Duration `key:"horizon" default:"0s" min:"0s" help:"Event time that a row waits for its label. A label of a later time is late. 0: it waits as long as there is room."`
	Default string        `key:"default" default:"none" help:"Class of a row without a label after labels.horizon, such as good. none: such a row does not count."`
	Late    Late          `key:"late" default:"replace" choices:"replace|drop" help:"A label that is later than labels.horizon: replace what counts without it, or drop it."`
}

// DefaultClass is the class of a row without a label after the horizon, or "" for none.
func (l Labels) DefaultClass() string {
	if l.Horizon == 0 || l.Default == NoDefault {
		return ""
	}
	class, _ := wire.Label(l.Default)
	return class
}

// Retire says which blocks stay live. Of Blocks, Rows and Age, those that Keep names are set.
type Retire struct {
	Keep    Keep          `key:"keep" default:"all" choices:"all|blocks|rows|age|blocks+rows|blocks+age|rows+age|blocks+rows+age" help:"Blocks to keep: all, or the latest by number of blocks, number of rows, or age in event time. With several, all limits hold."`
	Blocks  int           `key:"blocks" default:"0" min:"0" help:"Number of blocks to keep. Set exactly when retire.keep has blocks."`
	Rows    int64         `key:"rows" default:"0" min:"0" help:"Number of rows to keep. Set exactly when retire.keep has rows."`
	Age     time.Duration `key:"age" default:"0s" min:"0s" help:"Age of the oldest event time to keep, counted back from the newest. Set exactly when retire.keep has age."`
	Archive bool          `key:"archive" default:"false" help:"Keep the summaries of the blocks that retire.keep lets go, so that windows of the past have them."`
	Topic   string        `key:"topic" help:"Control topic of records that retire blocks, in every replica, until they are taken back (cleanup.policy=compact). Empty: none."`
	Header  string        `key:"header" help:"Record header whose values may choose the blocks to retire. The ledger keeps a hash of the value. Empty: none."`

	HalfLife     time.Duration `key:"half_life" default:"0s" min:"0s" help:"Age in event time, counted back from the newest live block, at which a block weighs half. 0: blocks of all ages weigh alike."`
	HalfLifeRows int64         `key:"half_life_rows" default:"0" min:"0" max:"9007199254740992" help:"Number of newer live rows at which a block weighs half. Not together with half_life. 0: blocks of all ages weigh alike."`

	MaxFuture time.Duration `key:"max_future" default:"5m" min:"0s" help:"Most time that a record counts as ahead of its partition's clock, the third-latest event time of the last 16 records there."`
}

// Drift configures the detectors of changes in the stream.
type Drift struct {
	Detect bool `key:"detect" default:"true" help:"Watch the errors on arriving rows, and the loss of the served planes on the newest blocks, for changes."`
	Every  int  `key:"every" default:"0" min:"0" help:"Blocks of a partition after which the planes that judge its next ones are solved again: progressive figures. 0: none."`
}

// Remembers reports whether predictions are remembered: predict.output is the topic of rows.
func (c *Config) Remembers() bool {
	return c.Predict.Output != "" && c.Predict.Output == c.Kafka.Topic
}

// Predict says which rows of a topic the daemon answers, and where.
type Predict struct {
	Topic  string     `key:"topic" help:"Topic of rows that are answered by predictions, each once. Empty: none."`
	Output string     `key:"output" help:"Topic of the answers, made if it is missing; empty: <predict.topic>.answers. Or kafka.topic, with labels.topic: predictions wait there."`
	Form   AnswerForm `key:"form" default:"json" choices:"json|rows|csv|arrow" help:"Form of the answers: as those of POST /v1/predict, rows with form=rows."`
	Group  string     `key:"group" help:"Group of the daemons that share predict.topic. Empty: streamd.predict.<predict.topic>.<predict.output>."`
}

// Snapshot says where and how often the state is saved. A save happens when either bound is
// reached, and at shutdown.
type Snapshot struct {
	File     string        `key:"file" default:"streamd.db" help:"File of the state, the live blocks and the offsets."`
	Interval time.Duration `key:"interval" default:"1s" min:"10ms" help:"Most time between a change and its save. Longer where saves would take over a twentieth of the time and unsaved blocks have room."`
	Blocks   int           `key:"blocks" default:"100" min:"1" help:"Most blocks between two saves, with the same exceptions."`
	Scrub    time.Duration `key:"scrub" default:"1h" min:"0s" help:"Most time from an explicit retirement to the compaction that removes it from the file. 0: only on request."`
	KeyFile  string        `key:"key_file" help:"File of a secret of 16 bytes or more. A snapshot that was changed without the secret is refused. Empty: none."`
}

// Receipts configures the log of receipts for blocks that leave the live set.
type Receipts struct {
	KeyFile   string   `key:"key_file" help:"File of the Ed25519 key that signs receipts. The first start makes it, and its public half beside it. Empty: no receipts."`
	Witnesses []string `key:"witnesses" help:"Witnesses that are asked to cosign the log of receipts, each as \"URL PUBLIC-KEY\": see config/receipts.md."`
}

// HTTP says how the model is served, and to whom.
type HTTP struct {
	Listen         string   `key:"listen" default:"127.0.0.1:8080" help:"Address host:port to serve on. An empty host is every interface, and port 0 any free port."`
	Open           bool     `key:"open" default:"false" help:"Serve on an address that other machines can reach without http.tokens_file and http.tls.client_ca_file."`
	TokensFile     string   `key:"tokens_file" help:"File of bearer tokens with lines NAME ROLES TOKEN, such as: ops admin 9f86d081884c7d65. It is read again when it changes."`
	Anonymous      Roles    `key:"anonymous" help:"Roles of callers without token and certificate. Empty: none where tokens_file or client_ca_file is set, else all."`
	Hosts          []string `key:"hosts" help:"Host names that requests may be addressed to, besides localhost and, where http.listen is not loopback, IP addresses."`
	CORSOrigins    []string `key:"cors_origins" help:"Origins of the web pages that may call, such as https://board.example."`
	MaxBodyBytes   Size     `key:"max_body_bytes" default:"16MiB" min:"1KiB" max:"1GiB" help:"Largest request body, also after decompression."`
	MaxRows        int      `key:"max_rows" default:"100000" min:"1" help:"Most rows in one prediction request."`
	MaxConnections int      `key:"max_connections" default:"0" min:"0" max:"1000000" help:"Most open connections. 0: half of the file descriptors that the process may open, at most 1024."`
	ReadyLag       int64    `key:"ready_lag" default:"10000" min:"0" help:"Records left to read, in all partitions, at which /readyz first answers 200. It then stays ready with more."`
	TLS            HTTPTLS  `key:"tls"`
}

// HTTPTLS configures encryption of HTTP and the roles of client certificates. The files are
// read again when they change.
type HTTPTLS struct {
	CertFile     string           `key:"cert_file" help:"PEM file of the daemon's certificate chain. Empty: HTTP is not encrypted. Goes with key_file."`
	KeyFile      string           `key:"key_file" help:"PEM file of the certificate's private key."`
	ClientCAFile string           `key:"client_ca_file" help:"PEM file of the authorities whose client certificates are accepted. Empty: none. Goes with clients."`
	Clients      map[string]Roles `key:"clients" help:"Roles by the name in a client certificate, its common name or a DNS name, such as: board.example=read+predict."`
}

// AnonymousRoles are the roles of callers without token and certificate.
func (h HTTP) AnonymousRoles() Roles {
	if h.Anonymous == "" && h.TokensFile == "" && h.TLS.ClientCAFile == "" {
		return allRoles
	}
	return h.Anonymous
}

// Log configures the log.
type Log struct {
	Level  string    `key:"level" default:"info" choices:"trace|debug|info|warn|error" help:"Least severe level that is logged."`
	Format LogFormat `key:"format" default:"auto" choices:"auto|json|console" help:"Log lines for people or for machines; auto is console on a terminal and json elsewhere."`
}

// origin is the source of a value.
type origin struct {
	Source       string // file name, variable, or flag with its dashes; empty: the default
	Line, Column int    // 1-based, in a file only
}

// Secret is a text that stays out of logs and dumps.
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
