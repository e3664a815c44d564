// Receives deliveries and verifies X-Service-Signature. Go's standard library is enough.
//
//	SIGNING_SECRET=whsec_… PORT=8000 go run receiver.go
//
// It speaks HTTP on the loopback interface: put a proxy that speaks TLS in front of it.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Seconds between the signature's time and our clock; more is not permitted.
const tolerance = 300

// Checks the header's value against the body, byte by byte as it came.
func verify(secret, signature string, body []byte, now int64) error {
	var times, digests []string
	for _, part := range strings.Split(signature, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "t":
			times = append(times, value)
		case "v1":
			digests = append(digests, value)
		}
	}
	if len(times) != 1 {
		return errors.New("the signature has no time")
	}
	signed, err := strconv.ParseUint(times[0], 10, 62)
	if err != nil {
		return errors.New("the signature has no time")
	}
	if distance := now - int64(signed); distance > tolerance || distance < -tolerance {
		return errors.New("the signature's time is too far from ours")
	}
	// The key is the whole secret, "whsec_" included. The time is not signed.
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	expected := []byte(hex.EncodeToString(mac.Sum(nil)))
	for _, digest := range digests {
		if hmac.Equal(expected, []byte(digest)) {
			return nil
		}
	}
	return errors.New("the signature does not match")
}

func main() {
	// In production: a unique key in your database, written in the transaction that processes the delivery.
	var seen sync.Map
	receive := func(answer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = verify(os.Getenv("SIGNING_SECRET"), request.Header.Get("X-Service-Signature"), body, time.Now().Unix())
		}
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		if _, again := seen.LoadOrStore(request.Header.Get("X-Service-Webhook-Id"), true); again {
			io.WriteString(answer, "seen before") // 2xx, or it comes again
			return
		}
		io.WriteString(answer, "received") // only now parse the body and process it
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), http.HandlerFunc(receive)))
}
