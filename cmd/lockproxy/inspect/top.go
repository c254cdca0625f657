package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/client"
)

const (
	mostShown      = 1000            // locks in one picture
	counterTimeout = 2 * time.Second // for the counters, which need the upstream
)

// What a terminal does with these: another screen without a cursor, where long lines are cut, and back; from the top; and the
// rest of a line and what is below it erased.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	fromTheTop  = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
)

// A Top is a picture of a proxy that is drawn again and again.
type Top struct {
	Dial  func(context.Context) (*client.Conn, error) // anew after each error
	Glob  string                                      // of the names that are shown
	Order string                                      // one of Orders
	Every time.Duration
	Times int // how many pictures; 0: until the context ends

	// Size is how many columns and lines fit, asked for each picture; nil: the output is no terminal, so that all is written,
	// one picture below the other.
	Size func() (columns, lines int)

	last   map[string]int64 // counters
	lastAt time.Time
}

// Run draws pictures until there were enough of them, or ctx ends, which is no error. While a proxy does not answer it says so
// and asks again; without a terminal that is its error.
func (t *Top) Run(ctx context.Context, out io.Writer) error {
	if t.Size != nil {
		if _, err := io.WriteString(out, enterScreen); err != nil {
			return err
		}
		defer func() { _, _ = io.WriteString(out, leaveScreen) }()
	}
	var c *client.Conn
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for i := 1; ; i++ {
		picture, err := t.picture(ctx, &c)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && t.Size == nil {
			return err
		}
		if err != nil {
			picture = fmt.Sprintf("no answer: %s\n", client.Printable(err.Error()))
		}
		if _, err := io.WriteString(out, t.fit(picture)); err != nil {
			return err
		}
		if i == t.Times {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.Every):
		}
	}
}

// picture asks over *c, which it opens, and closes after an error.
func (t *Top) picture(ctx context.Context, c **client.Conn) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, max(5*time.Second, t.Every))
	defer cancel()
	if *c == nil {
		opened, err := t.Dial(ctx)
		if err != nil {
			return "", err
		}
		*c = opened
	}
	text, err := t.draw(ctx, *c)
	if refused := (client.Refusal{}); err != nil && !errors.As(err, &refused) {
		(*c).Close()
		*c = nil
	}
	if text != "" {
		return text, nil
	}
	return "", err
}

// draw is a picture. With an error it lacks the counters, or is empty.
func (t *Top) draw(ctx context.Context, c *client.Conn) (string, error) {
	quorum, err := Nodes(ctx, c)
	if err != nil {
		return "", err
	}
	held, err := t.held(ctx, c)
	if err != nil {
		return "", err
	}
	head, err := t.counters(ctx, c)
	var b bytes.Buffer
	b.WriteString(head)
	if err := quorum.Write(&b); err != nil {
		return "", err
	}
	return b.String() + "\n" + held, err
}

// counters are the lines about the proxy. While its upstream is down or hangs they say so, beside the error.
func (t *Top) counters(ctx context.Context, c *client.Conn) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, counterTimeout)
	defer cancel()
	info, err := c.Ask(ctx, "INFO", "lockproxy")
	if err != nil {
		return fmt.Sprintf("no counters, for which the upstream is asked: %s\n", client.Printable(err.Error())), err
	}
	now, fields := time.Now(), sectionOf(info)
	return fmt.Sprintf("lockproxy, up %s: clients %s, waiting %s, sessions %s, version %s\n%s\n", short(1000*count(fields, "uptime_in_seconds")),
		fields["connected_clients"], fields["waiting"], fields["sessions"], fields["version"], t.rates(fields, now)), nil
}

// held is the table of locks.
func (t *Top) held(ctx context.Context, c *client.Conn) (string, error) {
	locks, more, err := Locks(ctx, c, t.Glob, mostShown)
	if refused := (client.Refusal{}); errors.As(err, &refused) { // NOQUORUM: the nodes are what to look at
		return client.Printable(refused.Error()) + "\n", nil
	}
	if err != nil {
		return "", err
	}
	atLeast := ""
	if more {
		atLeast = "more than "
	}
	Sort(locks, t.Order)
	return fmt.Sprintf("%s%d held, by %s\n", atLeast, len(locks), t.Order) + tableOf(locks), nil
}

func tableOf(locks []Lock) string {
	var b strings.Builder
	if len(locks) > 0 {
		_ = WriteLocks(&b, locks) // a Builder takes everything
	}
	return b.String()
}

// sectionOf are the fields of INFO's section of the proxy, without its prefix.
func sectionOf(info resp.Tree) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info.Text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[strings.TrimPrefix(name, "lockproxy_")] = value
		}
	}
	return fields
}

func count(fields map[string]string, name string) int64 {
	n, _ := strconv.ParseInt(fields[name], 10, 64)
	return n
}

// rates says how often what happened since the last picture, for the first one since the proxy has started.
func (t *Top) rates(fields map[string]string, now time.Time) string {
	seconds := float64(count(fields, "uptime_in_seconds"))
	if t.last != nil {
		seconds = now.Sub(t.lastAt).Seconds()
	}
	counters := map[string]int64{}
	var said []string
	for _, name := range []string{"commands", "grants", "refusals", "renewals", "releases", "noquorum"} {
		counters[name] = count(fields, name)
		grown := counters[name] - t.last[name]
		if grown < 0 { // the proxy has been started again
			grown = counters[name]
		}
		said = append(said, fmt.Sprintf("%s %.1f", name, float64(grown)/max(seconds, 1e-3)))
	}
	t.last, t.lastAt = counters, now
	return "a second: " + strings.Join(said, "  ")
}

// fit is a picture as the terminal takes it: no line is longer than its width, none below its last.
func (t *Top) fit(picture string) string {
	if t.Size == nil {
		return picture + "\n"
	}
	columns, lines := t.Size()
	var b strings.Builder
	b.WriteString(fromTheTop)
	all := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
	for i, line := range all[:min(len(all), max(lines, 1))] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if text := []rune(line); len(text) > columns {
			line = string(text[:columns])
		}
		b.WriteString(line)
		b.WriteString(eraseLine)
	}
	b.WriteString(eraseBelow)
	return b.String()
}
