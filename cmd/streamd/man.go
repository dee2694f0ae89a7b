package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
)

// manCmd writes the manual pages of the program and of each command, from the grammar.
type manCmd struct {
	Dir string `arg:"" help:"Folder to write streamd.1, streamd-run.1 and the others to."`
}

func (c *manCmd) Run(k *kong.Context, s *surroundings) error {
	pages := 0
	var write func(node *kong.Node) error
	write = func(node *kong.Node) error {
		if err := os.WriteFile(filepath.Join(c.Dir, pageName(node)+".1"), manPage(node), 0o666); err != nil {
			return fmt.Errorf("write the manual: %w", err)
		}
		pages++
		for _, child := range visible(node) {
			if err := write(child); err != nil {
				return err
			}
		}
		return nil
	}
	if err := write(k.Model.Node); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.stdout, "%s in %s\n", counted(pages, "page"), c.Dir)
	return err
}

// visible returns the commands below node that its help shows.
func visible(node *kong.Node) (commands []*kong.Node) {
	for _, child := range node.Children {
		if !child.Hidden {
			commands = append(commands, child)
		}
	}
	return commands
}

// pageName is the name of a command's page, such as streamd-blocks-list.
func pageName(node *kong.Node) string {
	return strings.ReplaceAll(node.FullPath(), " ", "-")
}

// manPage writes a command's page in the macros of man(7).
func manPage(node *kong.Node) []byte {
	var page []byte
	line := func(format string, args ...any) {
		for i, arg := range args {
			args[i] = roff(fmt.Sprint(arg))
		}
		page = fmt.Appendf(page, format+"\n", args...)
	}
	name := pageName(node)
	line(`.TH %s 1 "" "streamd %s" streamd`, strings.ToUpper(name), thisBuild().Version)
	line(".ad l\n.nh") // lists of choices have no space to stretch, and no hyphens
	line(".SH NAME")
	line(`%s \- %s`, name, node.Help)
	line(".SH SYNOPSIS")
	if node.Type == kong.ApplicationNode {
		line(`\fB%s\fR COMMAND [flags]`, name)
	} else {
		line(`\fB%s\fR%s`, node.FullPath(), strings.TrimPrefix(node.Summary(), node.Path()))
	}
	if node.Detail != "" {
		line(".SH DESCRIPTION")
		for part := range strings.SplitSeq(node.Detail, "\n\n") {
			line(".PP")
			line("%s", part)
		}
	}
	if commands := visible(node); len(commands) > 0 {
		line(".SH COMMANDS")
		for _, child := range commands {
			line(".TP")
			line(`\fB%s\fR`, child.Name)
			line("%s", child.Help)
		}
	}
	if len(node.Positional) > 0 {
		line(".SH ARGUMENTS")
		for _, p := range node.Positional {
			line(".TP")
			line(`\fI%s\fR`, p.Name)
			line("%s", p.Help)
		}
	}
	line(".SH OPTIONS")
	group := ""
	for _, flags := range node.AllFlags(true) {
		for _, f := range flags {
			if f.Group != nil && f.Group.Title != group {
				group = f.Group.Title
				line(".SS %s", group)
			}
			line(".TP")
			names := "--" + f.Name
			if f.Short != 0 {
				names = "-" + string(f.Short) + ", " + names
			}
			if f.IsBool() {
				line(`\fB%s\fR`, names)
			} else {
				line(`\fB%s\fR=\fI%s\fR`, names, f.FormatPlaceHolder())
			}
			line("%s", f.Help)
		}
	}
	if lines := examplesOf(node); lines != nil {
		line(".SH EXAMPLES")
		for _, example := range lines {
			line(".PP")
			line("%s", example)
		}
	}
	line(".SH EXIT STATUS")
	line("0 for success, 1 for failure, 2 for wrong usage.")
	if node.Parent != nil {
		line(".SH SEE ALSO")
		line(`\fB%s\fR(1)`, pageName(node.Parent))
	}
	return page
}

// roff escapes text for man(7), so that none of it is a macro or an escape, and every sign
// is printed as itself. A line may break after |, for choices are longer than lines.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, `"`, `\(dq`, "^", `\(ha`, "~", `\(ti`, "`", `\(ga`, "|", `|\:`, "\n.", "\n\\&.").Replace(text)
	if strings.HasPrefix(text, ".") {
		return `\&` + text
	}
	return text
}
