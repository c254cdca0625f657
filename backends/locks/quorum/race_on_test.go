//go:build race

package quorum

const raceDetector = true
