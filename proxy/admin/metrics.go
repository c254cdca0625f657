package admin

import (
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// maxScrapes is how many scrapes are served at once; more are refused.
const maxScrapes = 4

// metrics serves all metrics in the formats of Prometheus.
func (s *Server) metrics() http.Handler {
	return promhttp.HandlerFor(s.gatherer(), promhttp.HandlerOpts{
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: maxScrapes,
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            slog.NewLogLogger(s.opt.Log.Handler(), slog.LevelWarn),
	})
}

// registry is everything that has metrics, in the order of docs/metrics.md.
func (s *Server) registry() metrics.Registry {
	return append(metrics.Registry{s}, s.opt.Metrics...)
}

func (s *Server) gatherer() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		exporter{s.registry()},
	)
	return reg
}

// Report implements metrics.Reporter.
func (s *Server) Report(r *metrics.Report) {
	r.Gauge("lockproxy_build_info", "Always 1; the labels say which build this is.", 1, "version", s.opt.Version, "go_version", runtime.Version())
	r.Bool("lockproxy_ready", "1 if /readyz says that clients may be sent here, else 0.", isReady(s.readiness()))
	r.Bool("lockproxy_draining", "1 since the proxy was told to end; it lets no more clients in.", s.opt.Proxy.Draining())
	for _, c := range s.opt.Certificates {
		leaf := c.Leaf()
		r.Gauge("lockproxy_certificate_begins_timestamp_seconds", "When the certificate becomes valid that the proxy shows to clients, operators or servers, in Unix time; nothing where it shows none.",
			float64(leaf.NotBefore.Unix()), "use", c.Use)
		r.Gauge("lockproxy_certificate_ends_timestamp_seconds", "When it ends.", float64(leaf.NotAfter.Unix()), "use", c.Use)
	}
	for _, b := range s.pinger.statuses() {
		r.Bool("lockproxy_upstream_up", "1 if this master of the upstream has answered a PING within the last 3 seconds, else 0.", b.up, "server", b.addr)
		r.Gauge("lockproxy_upstream_ping_seconds", "How long this master's last answer to a PING took, behind what clients had asked for before.", b.took.Seconds(), "server", b.addr)
	}
}

// An exporter gives Prometheus' library what a registry gathers.
type exporter struct{ metrics.Registry }

// Describe implements prometheus.Collector. It describes nothing: which samples there are depends on
// what the proxy is connected to, so that the library checks them when they are collected.
func (exporter) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (e exporter) Collect(to chan<- prometheus.Metric) {
	for _, f := range e.Gather() {
		desc := prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
		for _, s := range f.Samples {
			m, err := export(desc, f.Kind, s)
			if err != nil {
				m = prometheus.NewInvalidMetric(desc, err)
			}
			to <- m
		}
	}
}

func export(desc *prometheus.Desc, kind metrics.Kind, s *metrics.Sample) (prometheus.Metric, error) {
	switch kind {
	case metrics.KindCounter:
		return prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value, s.Labels...)
	case metrics.KindGauge:
		return prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value, s.Labels...)
	}
	buckets, below := map[float64]uint64{}, uint64(0)
	for i, bound := range s.Durations.Bounds {
		below += uint64(s.Durations.Counts[i])
		buckets[bound] = below
	}
	return prometheus.NewConstHistogram(desc, uint64(s.Durations.Count()), s.Durations.Sum, buckets, s.Labels...)
}
