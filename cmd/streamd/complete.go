package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"streamd/cmd/streamd/listing"
)

// completionCmd prints a completion script. The scripts pass the words of the command line
// to "streamd __complete", which knows the grammar.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"${enum}. For bash and zsh: source <(streamd completion bash); for fish: streamd completion fish | source."`
}

func (c *completionCmd) Run(s *surroundings) error {
	_, err := io.WriteString(s.stdout, completionScripts[c.Shell])
	return err
}

// completeCall is the first argument in a call of the scripts. The others are the words
// behind the program's name, up to the word to complete.
const completeCall = "__complete"

// completionScripts offer file names where streamd offers nothing.
var completionScripts = map[string]string{
	"bash": `_streamd() {
    local IFS=$'\n'
    COMPREPLY=($("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _streamd streamd
`,
	"zsh": `#compdef streamd
_streamd() {
    local line
    local -a offers
    for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && offers+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( $#offers )); then
        _describe streamd offers
    else
        _files
    fi
}
if [[ $funcstack[1] == _streamd ]]; then
    _streamd "$@"
else
    compdef _streamd streamd
fi
`,
	"fish": `function __streamd_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l offers ($words[1] __complete $words[2..-1] 2>/dev/null)
    if set -q offers[1]
        string join \n $offers
    else
        __fish_complete_path $words[-1]
    end
end
complete -c streamd -f -a '(__streamd_complete)'
`,
}

// printCompletions prints a line for each completion of the last word: the completion, a
// tab and a short help.
func printCompletions(w io.Writer, app *kong.Application, words []string) error {
	out := bufio.NewWriter(w)
	if len(words) > 0 {
		complete(app.Node, words[:len(words)-1], words[len(words)-1], func(word, help string) {
			fmt.Fprintf(out, "%s\t%s\n", word, listing.OneLine(help)) // Flush has the error
		})
	}
	return out.Flush()
}

// complete offers the completions of last behind the words before it.
func complete(at *kong.Node, before []string, last string, offer func(word, help string)) {
	matching := func(word, help string) {
		if strings.HasPrefix(word, last) {
			offer(word, help)
		}
	}
	first := true
	if len(before) > 0 && before[0] == "help" {
		first, before = false, before[1:]
	}
	var pending *kong.Flag // the flag whose value comes next
	arguments := 0
	for _, word := range before {
		switch {
		case word == "=": // bash divides --flag=value into three words
		case pending != nil:
			pending = nil
		case strings.HasPrefix(word, "-"):
			if f := findFlag(at, word); f != nil && !f.IsBool() {
				pending = f
			}
		default:
			if child := findCommand(at, word); child != nil {
				at, first = child, false
			} else {
				arguments++
			}
		}
	}
	name, value, joined := strings.Cut(last, "=")
	switch {
	case pending != nil:
		last = strings.TrimPrefix(last, "=")
		offerValues(pending.Value, matching)
	case joined && strings.HasPrefix(name, "--"):
		if f := findFlag(at, name); f != nil {
			offerValues(f.Value, func(word, help string) {
				if strings.HasPrefix(word, value) {
					offer(name+"="+word, help)
				}
			})
		}
	case strings.HasPrefix(last, "-"):
		for _, group := range at.AllFlags(true) {
			for _, f := range group {
				matching("--"+f.Name, f.Help)
			}
		}
	case len(at.Children) > 0:
		for _, child := range at.Children {
			if !child.Hidden {
				matching(child.Name, child.Help)
			}
		}
		if first {
			matching("help", "Show the help of a command.")
		}
	case arguments < len(at.Positional):
		offerValues(at.Positional[arguments], matching)
	}
}

func findCommand(at *kong.Node, name string) *kong.Node {
	for _, child := range at.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

// findFlag returns the flag written as --name or -n. It is nil if there is none, or if the
// word already has its value.
func findFlag(at *kong.Node, word string) *kong.Flag {
	for _, group := range at.AllFlags(false) {
		for _, f := range group {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// offerValues offers the choices of a flag or an argument: those of its enum, or of a
// placeholder such as earliest|latest.
func offerValues(v *kong.Value, offer func(word, help string)) {
	if v.Enum != "" {
		for _, word := range v.EnumSlice() {
			offer(word, "")
		}
		return
	}
	if v.Flag == nil || !strings.Contains(v.Flag.PlaceHolder, "|") {
		return
	}
	for word := range strings.SplitSeq(v.Flag.PlaceHolder, "|") {
		if word == strings.ToLower(word) { // capitals, such as X, stand for any value
			offer(word, "")
		}
	}
}
