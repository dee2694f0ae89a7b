// Streamd learns classifiers from labelled blocks in Kafka and serves them over
// HTTP: hyperplanes in the features, or in the coordinates of a kernel's basis.
// "streamd help" lists its commands.
//
// Results go to standard output, all else to standard error. With --json the last line on
// standard output is exactly one JSON object. The exit status is 0 for success, 1 for
// failure and 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal begins an orderly stop. A second one has its usual effect, and so
	// ends a stop that takes too long.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	if err != nil && !errors.As(err, new(loggedError)) {
		fmt.Fprintln(os.Stderr, message(err))
	}
	os.Exit(exitStatus(err))
}

// surroundings are the parts of the process that a command uses.
type surroundings struct {
	env            []string // as from os.Environ
	stdin          io.Reader
	stdout, stderr io.Writer
}

// variable is the value of an environment variable, empty if it is not set.
func (s *surroundings) variable(name string) string {
	value := ""
	for _, entry := range s.env {
		if rest, ok := strings.CutPrefix(entry, name+"="); ok {
			value = rest // the last one counts, as for a new process
		}
	}
	return value
}

// newParser reads the grammar of the command line.
func newParser(options ...kong.Option) (*kong.Kong, error) {
	return kong.New(newGrammar(), append(options,
		kong.Name("streamd"),
		kong.Description("The streaming classifier whose model is a function of the set of live blocks."),
		kong.TypeMapper(reflect.TypeFor[time.Time](), kong.MapperFunc(timeMapper)),
		kong.TypeMapper(reflect.TypeFor[*time.Time](), kong.MapperFunc(timeMapper)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
	)...)
}

// run is the program. args do not have its name.
func run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) error {
	answered := false // kong printed help or the version while parsing
	var answerErr error
	args = slices.Clone(args)
	allKeys := false
	for i, arg := range args {
		if arg == "--help=all" {
			args[i], allKeys = "--help", true
		}
	}
	parser, err := newParser(
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { answered = true }),
		kong.Help(func(o kong.HelpOptions, c *kong.Context) error {
			answerErr = printHelp(o, c, allKeys)
			return nil // kong would report it as a wrong command line
		}),
		kong.Bind(&answerErr),
	)
	if err != nil {
		return fmt.Errorf("the grammar of the command line: %w", err)
	}
	if len(args) > 0 && args[0] == completeCall {
		return printCompletions(stdout, parser.Model, args[1:])
	}
	if len(args) > 0 && args[0] == "help" {
		args = append(args[1:len(args):len(args)], "--help")
	}
	command, err := parser.Parse(args)
	if answered {
		return answerErr
	}
	if err != nil {
		return usagef("%w; see streamd %s--help", err, commandPath(err))
	}
	command.BindTo(ctx, (*context.Context)(nil))
	limit := interrupted
	if daemon, ok := command.Selected().Target.Addr().Interface().(interface{ stopsWithin() time.Duration }); ok {
		limit = daemon.stopsWithin()
	}
	return within(ctx, limit, func() error { return command.Run(&surroundings{env, stdin, stdout, stderr}) })
}

// interrupted is how long a command may take to end after the first signal, so that the process is
// gone within a second. Tests of what an interrupted command says give it longer.
var interrupted = 800 * time.Millisecond

const forever = time.Duration(math.MaxInt64)

// within runs f. When ctx ends it waits for f for at most limit. Then it leaves f behind, in a read
// that nothing can interrupt, for instance of a pipe or a file system that does not answer, or in
// work that does not look at ctx. The process has to end then.
func within(ctx context.Context, limit time.Duration, f func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(limit):
		return fmt.Errorf("what was under way is left behind: %w", context.Canceled)
	}
}

// timeMapper reads a time.Time or a *time.Time. Its error shows a time, and not Go's layout of one.
func timeMapper(c *kong.DecodeContext, into reflect.Value) error {
	var text string
	if err := c.Scan.PopValueInto("time", &text); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("%.100q: want a time such as 2026-01-02T03:04:05Z", text)
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.ValueOf(&t))
	} else {
		into.Set(reflect.ValueOf(t))
	}
	return nil
}

// commandPath has the commands of a faulty command line, each with a blank behind it.
func commandPath(err error) string {
	path := ""
	if parse := (*kong.ParseError)(nil); errors.As(err, &parse) {
		for _, step := range parse.Context.Path {
			if step.Command != nil {
				path += step.Command.Name + " "
			}
		}
	}
	return path
}

// usageError is a wrong use of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func exitStatus(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(usageError)):
		return 2
	default:
		return 1
	}
}

// message is the error for people. Each line begins with the program's name.
func message(err error) string {
	text := err.Error()
	if errors.Is(err, context.Canceled) {
		// The text of context.Canceled tells the user nothing new.
		text = strings.TrimSuffix("interrupted: "+strings.TrimSuffix(text, context.Canceled.Error()), ": ")
	}
	return "streamd: " + strings.ReplaceAll(text, "\n", "\nstreamd: ")
}
