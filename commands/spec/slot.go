package spec

import "bytes"

// Slots is how many hash slots a Redis Cluster has.
const Slots = 16384

// Slot is the Redis Cluster hash slot of a key: a checksum of what is between the
// first { and the first } after it, or of the whole key if there is nothing between.
func Slot(key []byte) int {
	if open := bytes.IndexByte(key, '{'); open >= 0 {
		if length := bytes.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	var crc uint16
	for _, b := range key {
		crc = crc<<8 ^ crc16[byte(crc>>8)^b]
	}
	return int(crc % Slots)
}

// crc16 is the table of CRC-16/XMODEM: polynomial 0x1021, nothing reflected.
var crc16 = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
		t[i] = crc
	}
	return t
}()
