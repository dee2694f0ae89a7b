package httpapi

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var screenshots = flag.String("screenshots", "", "folder that the tests write pictures of the page to")

// browser starts Chromium. Without one the test is skipped, or fails where
// STREAMD_REQUIRE_CHROMIUM=1 demands one.
func browser(t *testing.T) context.Context {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		if os.Getenv("STREAMD_REQUIRE_CHROMIUM") == "1" {
			t.Fatal("there is no chromium, and STREAMD_REQUIRE_CHROMIUM demands one")
		}
		t.Skip("there is no chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.WSURLReadTimeout(time.Minute))
	if os.Geteuid() == 0 { // where Chromium has no sandbox
		options = append(options, chromedp.NoSandbox)
	}
	allocated, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop := chromedp.NewContext(allocated)
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	return ctx
}

// tab is a window of the browser that has opened nothing yet. Whatever reaches the console
// fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// A screen is the width of the window in pixels, and its colours.
type screen struct {
	width int64
	dark  bool
}

func (s screen) String() string {
	return fmt.Sprintf("%d %s", s.width, map[bool]string{true: "dark", false: "light"}[s.dark])
}

var screens = []screen{{390, false}, {390, true}, {1400, false}, {1400, true}}

func openTab(t *testing.T, browser context.Context, s screen) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser)
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, time.Minute)
	t.Cleanup(stop)
	var mu sync.Mutex
	var faults []string
	fault := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range faults {
			t.Error(f)
		}
	})
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			fault("exception: %v", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			var text []string
			for _, a := range e.Args {
				text = append(text, string(a.Value)+a.Description)
			}
			fault("console.%s: %s", e.Type, strings.Join(text, " "))
		case *log.EventEntryAdded:
			fault("%s: %s (%s)", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		case *page.EventJavascriptDialogOpening:
			fault("a dialog opens: %s", e.Message)
		}
	})
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	if err == nil {
		_, err = chromedp.Call(ctx, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
	}
	if err == nil {
		_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
	}
	if err == nil {
		err = chromedp.Do(ctx, chromedp.EmulateViewport(s.width, 900))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &tab{t, ctx}
}

// load opens an address and waits until nothing is busy.
func (w *tab) load(url string) {
	w.t.Helper()
	if err := chromedp.Do(w.ctx, chromedp.Navigate(url)); err != nil {
		w.t.Fatal(err)
	}
	w.until(`document.querySelector("main") !== null && ` + `document.querySelector('[aria-busy="true"]') === null`)
}

// until waits for an expression to be true.
func (w *tab) until(expression string) {
	w.t.Helper()
	if _, err := chromedp.Run(w.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(20*time.Second))); err != nil {
		w.t.Fatalf("%s: %v", expression, err)
	}
}

// eval returns the value of an expression.
func eval[T any](w *tab, expression string) T {
	w.t.Helper()
	value, err := chromedp.Run(w.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		w.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// layoutFaults lists texts that overlap each other, and elements that are wider than the
// window. Of a text counts what its ancestors show of it.
const layoutFaults = `(() => {
	const faults = [];
	const root = document.documentElement;
	if (root.scrollWidth > root.clientWidth) {
		const wide = [...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > root.clientWidth + 0.5 && !e.closest(".scroll"));
		faults.push("the page is " + root.scrollWidth + " wide in a window of " + root.clientWidth + ": " + wide.slice(0, 5).map((e) => e.outerHTML.slice(0, 120)).join(" | "));
	}
	const boxes = [];
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const text = texts.currentNode, of = text.parentElement;
		if (!text.data.trim() || of.matches("script, style, noscript, option, title") || !of.checkVisibility()) continue;
		const range = document.createRange();
		range.selectNodeContents(text);
		for (const r of range.getClientRects()) {
			let { left, top, right, bottom } = r;
			for (let a = of; a !== document.body; a = a.parentElement) {
				if (getComputedStyle(a).overflowX === "visible") continue;
				const c = a.getBoundingClientRect();
				left = Math.max(left, c.left); right = Math.min(right, c.right);
				top = Math.max(top, c.top); bottom = Math.min(bottom, c.bottom);
			}
			if (right - left > 1 && bottom - top > 1) boxes.push({ left, top, right, bottom, of: text, text: text.data.trim().slice(0, 20) + "…" + text.data.trim().slice(-20) });
		}
	}
	boxes.sort((a, b) => a.top - b.top);
	boxes.forEach((a, i) => {
		for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom - 4; j++) {
			const b = boxes[j];
			if (a.of === b.of) continue; // runs of one text in both directions
			if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2) faults.push("“" + a.text + "” overlaps “" + b.text + "”");
		}
	});
	if (boxes.length < 20) faults.push("only " + boxes.length + " texts were looked at");
	return faults.slice(0, 10);
})()`

// check fails for texts that overlap and for a page that is wider than the window.
func (w *tab) check() {
	w.t.Helper()
	for _, f := range eval[[]string](w, layoutFaults) {
		w.t.Error(f)
	}
}

// picture writes a picture of the whole page.
func (w *tab) picture(name string) {
	w.t.Helper()
	if *screenshots == "" {
		return
	}
	png, err := chromedp.Run(w.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, strings.ReplaceAll(name, " ", "-")+".png"), png, 0o666)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// Every state of the daemon is shown without a fault of layout and without an error, at
// the widths of a phone and of a desk, in light and in dark colours.
func TestPageInBrowser(t *testing.T) {
	chromium := browser(t)
	for name, f := range pageExamples(t) {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(newServer(f))
			defer server.Close()
			for _, s := range screens {
				t.Run(s.String(), func(t *testing.T) {
					w := openTab(t, chromium, s)
					w.load(server.URL)
					w.check()
					w.picture(name + " " + s.String())
					if eval[bool](w, `"hacked" in window || document.querySelector("[src=x]") !== null`) {
						t.Error("a name became markup")
					}
				})
			}
		})
	}
}
