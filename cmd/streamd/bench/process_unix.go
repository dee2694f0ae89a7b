//go:build unix

package bench

import (
	"os/exec"
	"syscall"
)

// detach puts a process into a group of its own. A terminal interrupts the whole group in
// front, and a daemon that is interrupted twice, by the terminal and by stop, does not save.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
