package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// examples are command lines by the command's name, at least two of each. They end its help and
// its manual page.
var examples = map[string]string{
	"demo": `streamd demo
streamd demo --rows 200000 --features 32 --separability hard --exit --json`,
	"summarise": `streamd summarise --kafka.topic orders --to blocks --format.features amount,age,country_de
streamd summarise orders.parquet --to blocks --sample 100`,
	"run": `streamd run --kafka.brokers 127.0.0.1:9092 --kafka.topic orders
streamd run --config streamd.yaml --check`,
	"replay ndc": `streamd replay ndc --rows 5000000 --topic ndc --partitions 4
streamd replay ndc --rows 1000000000 --topic ndc --wait-group ndc`,
	"replay file": `streamd replay file rows.csv --topic orders
streamd replay file rows.parquet --topic orders --label class --ignore id,*_at --block-rows 1000`,
	"schema infer": `streamd schema infer people.csv --label income
streamd schema infer --topic people`,
	"schema learn": `streamd schema learn people.csv --label income --schema schema.yaml
streamd schema learn --url http://127.0.0.1:8080`,
	"schema columns": `streamd schema columns schema.yaml
streamd schema columns schema.yaml --json`,
	"fit": `streamd fit rows.csv --label class
streamd fit rows.csv --kernel gaussian --basis 100 --test more.csv --json
streamd fit more.csv --sums kept.sums`,
	"predict": `streamd predict more.csv --model model.json --values
streamd predict more.csv --url http://127.0.0.1:8080 --contributions --top 5`,
	"export": `streamd export model.json --onnx model.onnx --c model.c
streamd export --url http://127.0.0.1:8080 --sql --table rows --keep id
streamd export --from 2026-01-02T00:00:00Z --mlflow model`,
	"model": `streamd model --wait 30s
streamd model --from 2026-01-02T00:00:00Z --to 2026-01-03T00:00:00Z --json`,
	"compare": `streamd compare 2026-01-01T00:00:00Z,2026-01-02T00:00:00Z
streamd compare 2026-01-01T00:00:00Z,2026-01-02T00:00:00Z 2026-01-02T00:00:00Z,2026-01-03T00:00:00Z --json`,
	"history": `streamd history --span hours
streamd history --span days --json`,
	"windows": `streamd windows --step 1d --window 30d
streamd windows --step 1h --from 2026-01-02T00:00:00Z --json`,
	"status": `streamd status
streamd status --url http://127.0.0.1:8080 --json`,
	"health": `streamd health
streamd health --ready`,
	"plot": `streamd plot model.json --out regions.png
streamd plot model.json --data rows.csv --out regions.svg`,
	"refine": `streamd refine
streamd refine --wait 10s --json`,
	"reduce": `streamd reduce
streamd reduce --prune lda --basis 20`,
	"epoch": `streamd epoch
streamd epoch --json`,
	"tuning": `streamd tuning
streamd tuning --json`,
	"quality": `streamd quality
streamd quality --json`,
	"labels": `streamd labels --count 20
streamd labels rows.csv --count 20 --unlabelled-text ?`,
	"blocks": `streamd blocks
streamd blocks --archived --json`,
	"retire": `streamd retire carol orders/0/17
streamd retire --from 2026-01-02T00:00:00Z --to 2026-01-03T00:00:00Z --dry-run`,
	"control list": `streamd control list
streamd control list --brokers 127.0.0.1:9092 --topic retirements --json`,
	"control retire": `streamd control retire request-17 --key carol
streamd control retire request-18 --positions orders/0/100-199`,
	"control restore": `streamd control restore request-17
streamd control restore request-18 --json`,
	"receipts get": `streamd receipts get 1 --out 1.tlog-proof
streamd receipts get 1`,
	"receipts find": `streamd receipts find --snapshot copy.db --private-key ledger.key key:carol
streamd receipts find --snapshot copy.db --private-key ledger.key orders/0/17 --json`,
	"receipts verify": `streamd receipts verify 1.tlog-proof --key ledger.key.pub
streamd receipts verify 1.tlog-proof --key ledger.key.pub --snapshot copy.db --replay streamd.yaml`,
	"snapshot inspect": `streamd snapshot inspect streamd.db
streamd snapshot inspect streamd.db --json`,
	"snapshot verify": `streamd snapshot verify streamd.db
streamd snapshot verify copy.db --key-file snapshot.key --json`,
	"snapshot save": `streamd snapshot save
streamd snapshot save --compact`,
	"snapshot compact": `streamd snapshot compact streamd.db
streamd snapshot compact streamd.db --key-file snapshot.key`,
	"snapshot rekey": `streamd snapshot rekey streamd.db --key-file new.key
streamd snapshot rekey streamd.db --old-key-file old.key --key-file new.key`,
	"letters list": `streamd letters list --since 2026-01-02T00:00:00Z
streamd letters list --topic orders --limit 20 --json`,
	"letters show": `streamd letters show 0/17
streamd letters show 0/17 --out letter.bin`,
	"letters replay": `streamd letters replay 0/17 0/18
streamd letters replay --all --dry-run`,
	"version": `streamd version
streamd version --json`,
	"completion": `streamd completion bash
streamd completion zsh`,
	"bench ingest": `streamd bench ingest --rows 20000000 --rounds 3
streamd bench ingest --brokers 127.0.0.1:9092 --json`,
	"bench census": `streamd bench census --format avro,json --block-rows 1 --rows 1000000
streamd bench census --rows 15000000 --brokers 127.0.0.1:9092`,
	"bench freshness": `streamd bench freshness --rate 1000
streamd bench freshness --rate 10000 --polls 64 --rounds 1`,
	"bench answers": `streamd bench answers --block-rows 1000
streamd bench answers --form json --share 0.05 --brokers 127.0.0.1:9092`,
	"bench background": `streamd bench background
streamd bench background --json`,
	"bench billion": `streamd bench billion --brokers 127.0.0.1:9092
streamd bench billion --rows 10000000`,
	"bench trillion": `streamd bench trillion --brokers 127.0.0.1:9092
streamd bench trillion --blocks 10000 --sums 10 --block-rows 1000`,
	"bench peers": `streamd bench peers
streamd bench peers --json`,
	"bench gram": `streamd bench gram --features 10,100 --type float32 --threads 1
streamd bench gram --each`,
	"bench wire": `streamd bench wire --threads 1
streamd bench wire --json`,
	"bench solve": `streamd bench solve
streamd bench solve --json`,
	"bench ledger": `streamd bench ledger --blocks 100000 --together 10000
streamd bench ledger --part tools --rounds 1 --json`,
	"bench snapshot": `streamd bench snapshot
streamd bench snapshot --json`,
	"bench predict": `streamd bench predict --threads 1
streamd bench predict --json`,
	"reproduce": `streamd reproduce fung-4.1 --data data
streamd reproduce wu-1 --data data --json`,
}

// examplesOf returns the examples of a command, each a line; none of a group of commands.
func examplesOf(node *kong.Node) []string {
	text := examples[strings.TrimPrefix(node.FullPath(), "streamd ")]
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// commonKeys are the keys that people set first, by command. Its help lists these alone.
var commonKeys = map[string][]string{
	"run": {
		"kafka.brokers", "kafka.topic", "format.label", "format.ignore", "blocks.unit",
		"model.nu", "model.standardise", "retire.keep", "snapshot.file", "http.listen",
	},
	"summarise": {
		"kafka.brokers", "kafka.topic", "kafka.group", "format.label", "format.features", "blocks.unit",
		"dead_letters.policy", "http.listen",
	},
}

// printHelp is kong's, with the examples of the command. Of the keys of the configuration it has
// the common ones, or all.
func printHelp(o kong.HelpOptions, c *kong.Context, allKeys bool) error {
	node, others := c.Selected(), 0
	if node == nil {
		node = c.Model.Node
	}
	for _, f := range node.Flags {
		switch {
		case f.Group == nil || allKeys:
		case slices.Contains(commonKeys[node.Name], f.Name):
			f.Group = nil
		default:
			f.Hidden = true
			others++
		}
	}
	if err := kong.DefaultHelpPrinter(o, c); err != nil {
		return err
	}
	var end string
	if others > 0 {
		end += fmt.Sprintf("\nThe other %d keys of the configuration are flags, too: see streamd %s --help=all\nand config/README.md.\n", others, node.Name)
	}
	if lines := examplesOf(node); lines != nil {
		end += "\nExamples:\n  " + strings.Join(lines, "\n  ") + "\n"
	}
	_, err := io.WriteString(c.Stdout, end)
	return err
}
