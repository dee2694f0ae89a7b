package httpapi

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	"github.com/rs/zerolog"

	"streamd/cmd/streamd/model"
	"streamd/cmd/streamd/predictions"
	"streamd/incremental"
	"streamd/ingest/wire"
)

var screenshots = flag.String("screenshots", "", "folder that the tests write pictures of the page to")

// browser starts Chromium. Without one the test is skipped, or fails where
// STREAMD_REQUIRE_PROGRAMS=1 demands one.
func browser(t *testing.T) context.Context {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		if os.Getenv("STREAMD_REQUIRE_PROGRAMS") != "" {
			t.Fatal("there is no chromium, and STREAMD_REQUIRE_PROGRAMS demands one")
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
	t        *testing.T
	ctx      context.Context
	expected string // a part of what may reach the console
}

// A screen is the width of the window in pixels, and its colours.
type screen struct {
	width int64
	dark  bool
}

func (s screen) String() string {
	return fmt.Sprintf("%d %s", s.width, map[bool]string{true: "dark", false: "light"}[s.dark])
}

// phone, tablet and desk are the widths that the page is made for.
const phone, tablet, desk = 390, 1024, 1440

// screens are those that a state is looked at on. The colours change no place of a text, so the
// dark ones are for pictures.
func screens() []screen {
	all := []screen{{phone, false}, {desk, false}}
	if *screenshots != "" {
		all = append(all, screen{tablet, false}, screen{phone, true}, screen{desk, true})
	}
	return all
}

func openTab(t *testing.T, browser context.Context, s screen) *tab {
	t.Helper()
	ctx, stop := chromedp.NewContext(browser)
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, time.Minute)
	t.Cleanup(stop)
	w := &tab{t: t, ctx: ctx}
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
			if w.expected == "" || !strings.Contains(f, w.expected) {
				t.Error(f)
			}
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
	return w
}

// load opens an address and waits until nothing is busy.
func (w *tab) load(url string) {
	w.t.Helper()
	if err := chromedp.Do(w.ctx, chromedp.Navigate(url)); err != nil {
		w.t.Fatal(err)
	}
	w.until(`document.querySelector("main") !== null && ` + `document.querySelector('[aria-busy="true"]') === null`)
}

// open opens an address without waiting for scripts.
func (w *tab) open(url string) {
	w.t.Helper()
	if err := chromedp.Do(w.ctx, chromedp.Navigate(url)); err != nil {
		w.t.Fatal(err)
	}
}

// untilShown waits for an element, without a script of the page.
func (w *tab) untilShown(selector string) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !eval[bool](w, fmt.Sprintf(`document.readyState === "complete" && document.querySelector(%q) !== null`, selector)) {
		if time.Now().After(deadline) {
			w.t.Fatalf("there is no %s on %s", selector, eval[string](w, `location.href`))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// until waits for an expression to be true.
func (w *tab) until(expression string) {
	w.t.Helper()
	evaluate[bool](w, expression, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(20*time.Second)))
}

// click clicks the first element of a selector. A page that is left has been clicked.
func (w *tab) click(selector string) {
	w.t.Helper()
	found, err := chromedp.Run(w.ctx, chromedp.Evaluate[bool](
		fmt.Sprintf(`(() => { const e = document.querySelector(%q); e?.click(); return e !== null; })()`, selector)))
	if err != nil && !left(err) || err == nil && !found {
		w.t.Fatalf("click %s: found %t: %v", selector, found, err)
	}
}

// enter types a value into an input, in the place of what it has.
func (w *tab) enter(selector, value string) {
	w.t.Helper()
	eval[string](w, fmt.Sprintf(`document.querySelector(%q).value = %q`, selector, value))
}

// text is what can be read of an element, with single blanks.
func (w *tab) text(selector string) string {
	w.t.Helper()
	return strings.Join(strings.Fields(eval[string](w, fmt.Sprintf(`document.querySelector(%q).innerText`, selector))), " ")
}

// eval returns the value of an expression.
func eval[T any](w *tab, expression string) T {
	w.t.Helper()
	return evaluate(w, expression, chromedp.Evaluate[T](expression))
}

// evaluate asks again where the page was left for another one before it answered.
func evaluate[T any](w *tab, expression string, ask chromedp.Action[T]) T {
	w.t.Helper()
	for {
		value, err := chromedp.Run(w.ctx, ask)
		if err == nil {
			return value
		}
		if !left(err) {
			w.t.Fatalf("%s: %v", expression, err)
		}
	}
}

// left reports whether an expression has no value because its page was left for another one:
// the protocol's errors of it have one code, and differ in their words.
func left(err error) bool {
	for _, words := range []string{"Inspected target navigated or closed", "Execution context was destroyed", "Cannot find context with specified id"} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
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
	const dialog = document.querySelector("dialog[open]"); // lies on top of the rest
	const texts = document.createTreeWalker(dialog ?? document.body, NodeFilter.SHOW_TEXT);
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
	if (boxes.length < (dialog ? 5 : 20)) faults.push("only " + boxes.length + " texts were looked at");
	return faults.slice(0, 10);
})()`

// faintTexts lists texts whose contrast with what is behind them is below that of WCAG 2 AA: 4.5,
// or 3 for large ones. Graphics and what is disabled are left out.
const faintTexts = `(() => {
	const channels = (color) => {
		const c = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
		c.fillStyle = color; c.fillRect(0, 0, 1, 1);
		return c.getImageData(0, 0, 1, 1).data;
	};
	const known = new Map();
	const rgba = (color) => { if (!known.has(color)) known.set(color, [...channels(color)]); return known.get(color); };
	const luminance = (rgb) => {
		const [r, g, b] = rgb.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (e) => {
		const layers = [];
		for (; e; e = e.parentElement) {
			const color = getComputedStyle(e).backgroundColor;
			if (!/, 0\)$|transparent/.test(color)) layers.push(color);
		}
		const c = document.createElement("canvas").getContext("2d");
		c.fillStyle = "#fff"; c.fillRect(0, 0, 1, 1);
		for (const color of layers.reverse()) { c.fillStyle = color; c.fillRect(0, 0, 1, 1); }
		return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3);
	};
	const faults = [];
	let looked = 0;
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const of = texts.currentNode.parentElement;
		if (!texts.currentNode.data.trim() || of.matches("script, style, noscript") || of.closest("svg, :disabled, .unseen") || !of.checkVisibility()) continue;
		const style = getComputedStyle(of), size = parseFloat(style.fontSize);
		const a = luminance(rgba(style.color).slice(0, 3)), b = luminance(behind(of));
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
		looked++;
		if (contrast < (large ? 3 : 4.5)) faults.push(contrast.toFixed(2) + " for “" + texts.currentNode.data.trim().slice(0, 40) + "”");
	}
	if (looked < 15) faults.push("only " + looked + " texts were looked at");
	return faults;
})()`

// Texts can be read in light and in dark colours, the page has its landmarks, and whatever is
// focused shows that it is.
func TestPageIsAccessible(t *testing.T) {
	chromium := browser(t)
	f := pageExamples(t)["a gap"]
	f.explain(10)
	f.status.Problems = append(f.status.Problems, Problem{Kind: ProblemSave, Since: testTime, Text: "the snapshot cannot be saved", Action: "make room"})
	SortProblems(f.status.Problems)
	server := httptest.NewServer(newServer(f))
	defer server.Close()
	for _, dark := range []bool{false, true} {
		w := openTab(t, chromium, screen{desk, dark})
		for _, view := range viewNames {
			w.load(server.URL + "/?view=" + view)
			for _, fault := range eval[[]string](w, faintTexts) {
				t.Errorf("dark: %v, %s: contrast %s", dark, view, fault)
			}
			const structure = `[document.querySelectorAll("body > header, body > nav[aria-label], body > main, body > footer").length, document.querySelectorAll("h1").length,
				document.querySelectorAll("[aria-live]:not(#problems)").length, [...document.querySelectorAll("input, textarea")].filter((i) => !i.labels.length).length,
				[...document.querySelectorAll("svg:not([aria-hidden]):not([aria-label])")].length, [...document.querySelectorAll("img:not([alt])")].length].join(" ")`
			if got := eval[string](w, structure); got != "4 1 0 0 0 0" {
				t.Errorf("%s: landmarks, headings, live regions, inputs without a label, pictures without a text: %s", view, got)
			}
		}
		if got := eval[string](w, `(() => { const a = document.querySelector("nav a"); a.focus({ focusVisible: true }); return getComputedStyle(a).outlineStyle + " " + getComputedStyle(a).outlineWidth; })()`); got != "solid 2px" {
			t.Errorf("the focus is shown as %s", got)
		}
	}
}

// check fails for texts that overlap and for a page that is wider than the window.
func (w *tab) check(view string) {
	w.t.Helper()
	for _, f := range eval[[]string](w, layoutFaults) {
		w.t.Errorf("%s: %s", view, f)
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

// texts that a state must show in a view.
var statesShow = map[string]map[string][]string{
	"2 classes":              {viewOverview: {"Yes ", "75.0 %", "always the largest class: 80.0 %", "660", "Nothing"}, viewQuality: {"class A", "predicted probability"}},
	"10 classes":             {viewQuality: {"all classes", "0.0216 → 0.0126"}},
	"300 classes":            {viewModel: {"1–24 of 300"}, viewQuality: {"1–24 of 300"}, viewStream: {"and 940 more partitions"}},
	"kernel":                 {viewModel: {"gaussian(gamma=0.5)", "epoch"}},
	"names that differ late": {viewModel: {"_building_10_mea", "_building_15_mea", "_orders_a"}, viewQuality: {"_orders_b"}},
	"a burst an hour ago":    {viewOverview: {"Waiting for rows", "the last row came", "The last 24 hours", "93.8 %"}, viewPast: {"last 24 hours"}},
	"an alarm":               {viewOverview: {"1 problem", "the share of wrong answers rose from 6.0 % to 96.0 %", "What to do:"}, viewPast: {"error up"}},
	"a gap":                  {viewOverview: {"2 problems", "41200 records"}},
	"everything refused":     {viewOverview: {"No the last 300 records were refused", "the last 300 records were refused", "column campaign is not a feature"}, viewStream: {"the payload cannot be decoded"}},
	"receipts":               {viewReceipts: {"12 345", "witness.example/two", "12 blocks"}, viewBlocks: {"key"}},
	"dead letters":           {viewStream: {"there would be too many classes", "1 234 561"}},
	"broker away":            {viewOverview: {"No the topic's partitions are not known yet", "connection refused"}},
	"no model":               {viewOverview: {"Not yet", "the live rows are all of one class, ham"}, viewModel: {"There is no model yet"}},
	"hostile names":          {viewModel: {"f1", "c11"}, viewQuality: {"c11"}},
}

// Every view of every state of the daemon is shown without a fault of layout and without an
// error, at the widths of a phone and of a desk, and says what it must.
func TestPageInBrowser(t *testing.T) {
	chromium := browser(t)
	examples := pageExamples(t)
	for name := range statesShow {
		if examples[name] == nil {
			t.Errorf("there is no state %s", name)
		}
	}
	for name, f := range examples {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(newServer(f))
			defer server.Close()
			for _, s := range screens() {
				t.Run(s.String(), func(t *testing.T) {
					w := openTab(t, chromium, s)
					for _, view := range viewNames {
						w.load(server.URL + "/?view=" + view)
						if view == viewPast && !f.empty {
							w.until(`document.querySelectorAll("#history canvas").length === 5`)
						}
						w.check(view)
						w.picture(name + " " + view + " " + s.String())
						text := w.text("body")
						for _, want := range statesShow[name][view] {
							if !strings.Contains(strings.ReplaceAll(text, "\u202f", " "), want) {
								t.Errorf("the view %s lacks %q: %s", view, want, text)
							}
						}
						if eval[bool](w, `"hacked" in window || document.querySelector("[src=x]") !== null`) {
							t.Error("a name became markup")
						}
					}
				})
			}
		})
	}
}

// A caller signs in on the page, goes through the list of blocks, and retires one with the token
// of another role. The second one needs no token to be typed in.
func TestRetireInBrowser(t *testing.T) {
	chromium := browser(t)
	f := newFake()
	for i := range 45 {
		f.ids = append(f.ids, fmt.Sprintf("orders/3/8%02d", i))
	}
	slices.Sort(f.ids)
	server := httptest.NewServer(New(Config{Access: guard(t, "")}, f, NewMetrics(), zerolog.Nop()))
	defer server.Close()
	w := openTab(t, chromium, screen{phone, false})
	w.expected = "the server responded with a status of 40"
	w.load(server.URL + "/?view=blocks")
	w.enter("form.signin input", "nobody-0123456789abcdef")
	w.click("form.signin button")
	w.until(`document.querySelector(".note")?.innerText.includes("token")`)
	w.enter("form.signin input", readToken)
	w.click("form.signin button")
	w.until(`document.querySelectorAll("#blocks tbody tr button").length === 20`)

	ids := func() []string {
		return eval[[]string](w, `[...document.querySelectorAll("#blocks tbody tr")].map((row) => row.dataset.id)`)
	}
	shows := func(from, to int) {
		t.Helper()
		w.until(fmt.Sprintf(`document.querySelector("#blocks tbody tr").cells[0].innerText === %q`, f.ids[from]))
		if got := ids(); !slices.Equal(got, f.ids[from:to]) {
			t.Errorf("blocks %d to %d: %q", from, to, got)
		}
	}
	next := func() {
		w.click(`#blocks .pager a:not([data-reload]):last-of-type, #blocks .pager a:nth-last-of-type(2)`)
	}
	shows(0, 20)
	next()
	shows(20, 40)
	next()
	shows(40, 48)
	eval[string](w, `history.back(), ""`)
	shows(20, 40)

	victims := []string{f.ids[22], f.ids[23]}
	for i, victim := range victims {
		w.until(fmt.Sprintf(`document.querySelector("#blocks tbody tr:nth-child(3)").dataset.id === %q && document.querySelector("#blocks tbody tr:nth-child(3) button") !== null`, victim))
		w.click("#blocks tbody tr:nth-child(3) button")
		if got := w.text("dialog .id"); got != victim {
			t.Fatalf("the dialog is about %s, not %s", got, victim)
		}
		if i == 0 {
			w.picture("dialog")
			w.enter("dialog input", readToken)
			w.click("dialog .danger")
			w.until(`document.querySelector("dialog .problem").innerText.includes("role retire")`)
			w.enter("dialog input", retireToken)
		}
		w.click("dialog .danger")
		w.until(`document.querySelector("dialog .receipt").checkVisibility()`)
		if slices.Contains(f.ids, victim) || len(f.ids) != 47-i {
			t.Errorf("%d blocks are live", len(f.ids))
		}
		if got := w.text("dialog .receipt"); !strings.Contains(got, "before d1 state digest after d2") {
			t.Errorf("the receipt says %s", got)
		}
		if got := w.text("dialog .remains"); got != "copies of the snapshot file" {
			t.Errorf("the receipt says that these remain: %s", got)
		}
		w.check("receipt")
		w.picture("receipt")
		w.click("dialog .receipt .close")
		w.until(fmt.Sprintf(`document.querySelector("[data-id='%s']") === null`, victim))
	}
	shows(20, 40)
}

// Who reads the page with a token that may retire is asked for no other.
func TestRetireWithTheTokenOfThePage(t *testing.T) {
	f := newFake()
	server := httptest.NewServer(New(Config{Access: guard(t, "read")}, f, NewMetrics(), zerolog.Nop()))
	defer server.Close()
	w := openTab(t, browser(t), screen{phone, false})
	w.load(server.URL + "/?view=blocks")
	w.until(`document.querySelector("#blocks tbody button") !== null`)
	eval[string](w, fmt.Sprintf(`sessionStorage.setItem("streamd.token", %q), ""`, retireToken))
	w.until(`document.querySelector("dialog input") === null`)
	w.until(`document.querySelector("#blocks tbody button") !== null`)
	w.click("#blocks tbody button")
	w.click("dialog .danger")
	w.until(`document.querySelector("dialog .receipt").checkVisibility()`)
	if len(f.ids) != 2 {
		t.Errorf("live blocks: %q", f.ids)
	}
}

// Without tokens nobody can show who it is, and the page says so.
func TestNoRetirementWithoutTokens(t *testing.T) {
	w := openTab(t, browser(t), screen{desk, false})
	server := httptest.NewServer(newServer(newFake()))
	defer server.Close()
	w.load(server.URL + "/?view=blocks")
	if eval[int](w, `document.querySelectorAll("#blocks tbody tr").length`) != 3 || eval[int](w, `document.querySelectorAll("#blocks tbody button").length`) != 0 {
		t.Error("blocks can be retired without a token")
	}
	if got := w.text("#blocks"); !strings.Contains(got, "http.tokens_file") {
		t.Errorf("the section says %s", got)
	}
}

// What has happened is seen away with a token that may, up to what the page showed. What holds
// stays, and has no button.
func TestSeenInBrowser(t *testing.T) {
	f := newFake()
	happened := Problem{Kind: ProblemGap, Subject: "deleted", Since: testTime, Last: testTime.Add(time.Minute), Count: 7, Text: "7 records were gone from the log before they were read"}
	f.status.Problems = []Problem{happened}
	server := httptest.NewServer(New(Config{Access: guard(t, "read")}, f, NewMetrics(), zerolog.Nop()))
	defer server.Close()
	w := openTab(t, browser(t), screen{phone, false})
	w.expected = "the server responded with a status of 40"
	w.load(server.URL)
	w.untilShown("#seen button")
	w.check("seen")
	w.picture("seen")
	w.enter("#seen input", retireToken)
	w.click("#seen button")
	w.until(`document.querySelector("#seen .problem").innerText.includes("role admin")`)
	w.enter("#seen input", adminToken)
	w.click("#seen button")
	w.until(`document.querySelector("#seen") === null && document.querySelectorAll("#problems li").length === 0`)
	f.mu.Lock()
	if !f.seen.Equal(happened.Last) {
		t.Errorf("seen up to %s, not %s", f.seen, happened.Last)
	}
	f.status.Problems = []Problem{{Kind: ProblemJob, Subject: "study", Since: testTime, Text: "it holds"}}
	f.mu.Unlock()
	w.until(`document.querySelectorAll("#problems li").length === 1`)
	if eval[int](w, `document.querySelectorAll("#seen").length`) != 0 {
		t.Error("a problem that holds can be seen away")
	}
}

// Who may not, and cannot show that, has no form.
func TestNoSeenFormWithoutTokens(t *testing.T) {
	f := newFake()
	f.status.Problems = []Problem{{Kind: ProblemGap, Since: testTime, Last: testTime, Text: "records were gone"}}
	for _, c := range []struct {
		server *Server
		token  string
		want   string
	}{
		{newServer(f), "", ""},
		{New(Config{Access: guard(t, "")}, f, NewMetrics(), zerolog.Nop()), readToken, `name="token"`},
		{New(Config{Access: guard(t, "")}, f, NewMetrics(), zerolog.Nop()), adminToken, "<button>Seen"},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
		r.Header.Set("Authorization", "Bearer "+c.token)
		if c.token == "" {
			r.Header.Del("Authorization")
		}
		w := httptest.NewRecorder()
		c.server.ServeHTTP(w, r)
		body := w.Body.String()
		if strings.Contains(body, `id="seen"`) != (c.want != "") || !strings.Contains(body, c.want) || c.token == adminToken && strings.Contains(body, `name="token"`) {
			t.Errorf("with token %q: %s", c.token, body)
		}
	}
}

// Without JavaScript every view can be reached, and shows its figures, its charts, its list of
// blocks and a diagram for each class.
func TestPageWithoutScripts(t *testing.T) {
	f := newFake()
	f.explain(3)
	for i := range 30 {
		f.ids = append(f.ids, fmt.Sprintf("orders/4/%02d", i))
	}
	server := httptest.NewServer(newServer(f))
	defer server.Close()
	w := openTab(t, browser(t), screen{phone, false})
	if _, err := chromedp.Call(w.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	follow := func(selector, has string) {
		t.Helper()
		w.click(selector)
		w.untilShown(has)
		w.check(selector)
	}
	w.open(server.URL)
	w.untilShown("#learning")
	if n := eval[int](w, `document.querySelectorAll("#courses svg.course path.curve").length`); n < 4 {
		t.Errorf("%d curves", n)
	}
	follow(`nav a[href="/?view=model"]`, "#model")
	follow(`nav a[href="/?view=quality"]`, "#trust svg.diagram circle")
	follow(`#trust a[href*="class=class+B"]`, "#trust a[aria-current][href*='class=class+B']")
	follow(`nav a[href="/?view=stream"]`, "#partitions table")
	follow(`nav a[href="/?view=blocks"]`, "#blocks [data-id='orders/4/00']")
	follow(`#blocks .pager a`, "#blocks [data-id='orders/4/29']")
	follow(`nav a[href="/?view=past"]`, "#history svg.course path.curve")
	follow(`#history a[href$="span=days"]`, "#history a[aria-current][href$='span=days']")
	follow(`nav a[href="/?view=receipts"]`, "#receipts pre")
	follow(`nav a[href="/"]`, "#learning")
}

// Of 300 classes any is chosen by name, with scripts and without.
func TestManyClassesInBrowser(t *testing.T) {
	f := newFake()
	f.explain(300)
	f.served.Quality.Planes[250].Class = "a <b>class</b> & \u202e with a name that is much longer than the others are, and no end to it"
	wanted := f.served.Quality.Planes[250].Class
	server := httptest.NewServer(newServer(f))
	defer server.Close()
	for i, s := range []screen{{phone, false}, {desk, true}} {
		w := openTab(t, browser(t), s)
		if i == 1 {
			if _, err := chromedp.Call(w.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
				t.Fatal(err)
			}
		}
		w.open(server.URL + "/?view=quality")
		w.untilShown("#choose select")
		if n := eval[int](w, `document.querySelectorAll("#choose option").length`); n != 301 {
			t.Errorf("%d options", n)
		}
		w.check("quality")
		w.picture("many " + s.String())
		eval[string](w, fmt.Sprintf(`document.querySelector("#choose select").value = %q, ""`, wanted))
		w.click("#choose button")
		w.untilShown("#trust tr.here a[href*='much+longer']")
		if got := eval[string](w, `document.querySelector("#choose select").value`); got != wanted {
			t.Errorf("%q is chosen", got)
		}
		w.check("chosen")
		w.picture("chosen " + s.String())
	}
}

// A view is kept by a reload and by the refresh, with what is scrolled and focused. The banner
// stays the same element, since screen readers tell what is new in it.
func TestPlaceInBrowser(t *testing.T) {
	f := newFake()
	f.explain(30)
	f.status.Problems = []Problem{{Kind: ProblemRefused, Text: "the last 300 records were refused"}}
	server := httptest.NewServer(newServer(f))
	defer server.Close()
	w := openTab(t, browser(t), screen{phone, false})
	w.load(server.URL)
	eval[string](w, `window.banner = document.querySelector("#problems"), window.line = document.querySelector("#problems li"), ""`)
	f.status.Problems[0].Text = "the last 301 records were refused"
	w.until(`document.querySelector("#problems").innerText.includes("301")`)
	if !eval[bool](w, `banner.isConnected && line.isConnected && banner.getAttribute("aria-live") === "off"`) {
		t.Error("a number in the banner is news")
	}
	f.status.Problems = append(f.status.Problems, Problem{Kind: ProblemWitness, Text: "a witness does not cosign"})
	w.until(`document.querySelector("#problems").innerText.includes("witness")`)
	if !eval[bool](w, `banner.isConnected && line.isConnected && banner.getAttribute("aria-live") === "polite"`) {
		t.Error("a problem in the banner is no news")
	}

	w.click(`nav a[href="/?view=quality"]`)
	w.until(`document.querySelector("#heldout") !== null && location.search === "?view=quality"`)
	eval[string](w, `document.querySelector("nav a[href='/?view=quality']").focus(), scrollTo(0, 700), document.querySelector("#heldout .scroll").scrollLeft = 50, ""`)
	f.served.Quality.Rows = 4321 // the section changes
	f.status.Problems = nil      // and the header
	w.until(`document.querySelector("#heldout").innerText.includes("4\u202f321") && document.querySelector("header .pill.good") !== null`)
	if got := eval[string](w, `[location.search, document.activeElement.getAttribute("href"), document.querySelector("#heldout .scroll").scrollLeft, Math.abs(scrollY - 700) < 100].join(" ")`); got != "?view=quality /?view=quality 50 true" {
		t.Errorf("after a refresh the place is %s", got)
	}
	if err := chromedp.Do(w.ctx, chromedp.Reload()); err != nil {
		t.Fatal(err)
	}
	w.until(`document.querySelector("#heldout") !== null && Math.abs(scrollY - 700) < 100`)
	eval[string](w, `history.back(), ""`)
	w.until(`document.querySelector("#glance") !== null && location.search === ""`)
}

// The place on the page of a caller with a token is the same after a reload.
func TestPlaceWithToken(t *testing.T) {
	f := newFake()
	f.explain(30)
	server := httptest.NewServer(New(Config{Access: guard(t, "")}, f, NewMetrics(), zerolog.Nop()))
	defer server.Close()
	w := openTab(t, browser(t), screen{phone, false})
	w.expected = "the server responded with a status of 401"
	w.load(server.URL)
	w.enter("form.signin input", readToken)
	w.click("form.signin button")
	w.until(`document.querySelector("#glance") !== null`)
	w.click(`nav a[href="/?view=quality"]`)
	w.until(`document.querySelector("#heldout") !== null`)
	eval[string](w, `scrollTo(0, 700), ""`)
	if err := chromedp.Do(w.ctx, chromedp.Reload()); err != nil {
		t.Fatal(err)
	}
	w.until(`document.querySelector("#heldout") !== null && Math.abs(scrollY - 700) < 100`)
}

// The form gives the answers of the API, and keeps what is typed while the page is
// fetched again.
func TestPredictInBrowser(t *testing.T) {
	chromium := browser(t)
	f := newFake()
	f.answers(t)
	rows := wire.Options{Missing: wire.Missing{Default: wire.MissingZero}}
	server := httptest.NewServer(New(Config{Access: newServer(f).config.Access, Rows: rows}, f, NewMetrics(), zerolog.Nop()))
	defer server.Close()
	w := openTab(t, chromium, screen{phone, true})
	w.load(server.URL + "/?view=model")
	if got := eval[string](w, `[...document.querySelectorAll(".inputs input")].map((i) => i.value + i.placeholder).join(", ")`); got != "mean 1, mean 0.25" {
		t.Errorf("the form begins with %s", got)
	}
	w.click("form.predict .fill")
	if got := eval[string](w, `[...document.querySelectorAll(".inputs input")].map((i) => i.value).join(", ")`); got != "1, 0.25" {
		t.Errorf("the mean row is %s", got)
	}
	w.enter(".inputs label:nth-child(1) input", "2")
	w.enter(".inputs label:nth-child(2) input", "0.5")
	w.click("form.predict button")
	w.until(`document.querySelectorAll(".answer table").length === 3`)
	want := decodeJSON[predictions.PredictAnswer](t, do(newServer(f), "POST", "/v1/predict", "2,0.5\n", "Content-Type: text/csv"))
	answer := w.text(".answer")
	for _, part := range []string{
		"Class " + want.Labels[0],
		fmt.Sprintf("spam %.1f %%", 100*want.Probabilities[0][1]), fmt.Sprintf("ham %.1f %%", 100*want.Probabilities[0][0]),
		fmt.Sprintf("log odds spam %g", want.Values[0][0]),
		"len 1 caps −0.5",
	} {
		if !strings.Contains(answer, part) {
			t.Errorf("the answer lacks %q: %s", part, answer)
		}
	}
	w.check("")

	f.serve(func(s *model.Served) { s.Blocks = 4321 })
	w.until(`document.querySelector("#model").innerText.includes("4\u202f321")`)
	if got := eval[string](w, `document.querySelector(".inputs input").value`); got != "2" || w.text(".answer") != answer {
		t.Errorf("after a refresh the form has %s, and the answer is %s", got, w.text(".answer"))
	}
	f.serve(func(s *model.Served) { // of other features
		m := *s.Model
		m.Features, m.Mean, m.Deviation = incremental.DefaultFeatures(50), make([]float64, 50), nil
		m.Planes = []incremental.Plane{{Class: "spam", W: make([]float64, 50), Gamma: -1}}
		s.Model, s.Hat, s.Calibration = &m, nil, nil
	})
	w.until(`document.querySelector("#predict textarea") !== null && document.querySelector(".answer").innerText === ""`)
	row := "0" + strings.Repeat(",0", 49) + "\n"
	w.enter("#predict textarea", row+row)
	w.click("form.predict button")
	w.until(`document.querySelector(".answer table")?.innerText.includes("spam")`)
	if got := regexp.MustCompile(` [0-9.]+ %`).ReplaceAllString(w.text(".answer"), ""); got != "row class its probability 1 spam 2 spam" {
		t.Errorf("the answer is %s", got)
	}
	f.serve(func(s *model.Served) { // that may be missing
		m := *s.Model
		m.Features, m.Mean = []string{"__proto__", hostileName("x")}, make([]float64, 2)
		m.Planes = []incremental.Plane{{Class: "spam", W: []float64{1, 2}, Gamma: 2.5}}
		s.Model, s.Missing = &m, rows.Missing
	})
	w.until(`document.querySelectorAll("#predict input").length === 2`)
	w.enter(".inputs label:nth-child(1) input", "")
	w.enter(".inputs label:nth-child(2) input", "1")
	w.click("form.predict button")
	w.until(`document.querySelector(".answer")?.innerText.includes("spam\t−1")`) // the log odds of 2·(2 − 2.5)
	f.serve(func(s *model.Served) {
		m := *s.Model
		m.Features, m.Mean = incremental.DefaultFeatures(50), make([]float64, 50)
		m.Planes = []incremental.Plane{{Class: "spam", W: make([]float64, 50), Gamma: -1}}
		s.Model, s.Missing = &m, wire.Missing{}
	})
	w.until(`document.querySelector("#predict textarea") !== null`)
	w.expected = "status of 400"
	w.enter("#predict textarea", "1,2,3")
	w.click("form.predict button")
	w.until(`document.querySelector("#predict .problem").innerText !== "" && document.querySelector(".answer").innerText === ""`)
}

// The switches change what is shown, and a refresh leaves it.
func TestSwitchesInBrowser(t *testing.T) {
	f := newFake()
	f.served.Model.Deviation = []float64{8, 0.5}
	server := httptest.NewServer(newServer(f))
	defer server.Close()
	w := openTab(t, browser(t), screen{desk, false})
	w.load(server.URL + "/?view=model")
	if got := w.text(".weights"); got != "len 8 caps −1" {
		t.Errorf("the weights are %s", got)
	}
	w.click(".switch a:not([aria-current])")
	w.until(`document.querySelector(".weights").innerText.includes("−2")`)
	f.serve(func(s *model.Served) { s.Blocks = 1234 })
	w.until(`document.querySelector("#model").innerText.includes("1\u202f234")`)
	if !eval[bool](w, `document.querySelector(".weights").innerText.includes("−2")`) {
		t.Error("a refresh has moved the switch")
	}
	w.click(`nav a[href="/?view=past"]`)
	w.until(`document.querySelectorAll("#history canvas").length === 5`)
	w.click(`#history a[href$="span=days"]`)
	w.until(`document.querySelector("#history")?.dataset.span === "days" && document.querySelectorAll("#history canvas").length === 5`)
	f.status.LiveRows = 1234
	eval[string](w, `window.chart = document.querySelector("#history canvas"), window.seen = 0, document.addEventListener("refreshed", () => window.seen++), ""`)
	w.until(`seen > 1`)
	if !eval[bool](w, `chart.isConnected && location.search.includes("days")`) {
		t.Error("a refresh has drawn the charts anew, or moved their span")
	}
	if got := w.text("#history"); strings.Contains(got, "at: –") {
		t.Errorf("the legend says nothing: %s", got)
	}
}

// A chart without any value keeps the server's words.
func TestChartWithoutValuesInBrowser(t *testing.T) {
	f := newFake()
	f.past = lagging(5)
	server := httptest.NewServer(newServer(f))
	defer server.Close()
	w := openTab(t, browser(t), screen{phone, false})
	w.open(server.URL + "/?view=past")
	w.untilShown("#history .u-legend")
	text := w.text("#history")
	if strings.Contains(text, "–") || !strings.Contains(text, "Nothing was measured") {
		t.Errorf("the charts say %s", text)
	}
	w.picture("charts")
}
