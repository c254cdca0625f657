FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /lockproxy ./cmd/lockproxy

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /lockproxy /lockproxy
COPY LICENSE /LICENSE
USER 65532:65532
# Loopback, the default elsewhere, cannot be reached from outside a container.
ENV LOCKPROXY_LISTEN=0.0.0.0:6380
EXPOSE 6380
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["/lockproxy", "healthcheck"]
ENTRYPOINT ["/lockproxy"]
CMD ["serve"]
