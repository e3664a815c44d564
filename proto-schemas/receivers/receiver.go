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
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tolerance   = 300         // seconds between the signature's time and our clock; more is not permitted
	longestBody = 1024 * 1024 // bytes
)

// Put your own code here. If it returns an error, the delivery is answered with 500 and comes again.
func process(body []byte) error {
	log.Println("processed", len(body), "bytes")
	return nil
}

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

type receiver struct {
	secret string
	// In production: a unique key in your database, written in the transaction of the processing.
	seen       map[string]bool
	oneAtATime sync.Mutex
}

func (r *receiver) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(answer, request.Body, longestBody))
	if err != nil {
		http.Error(answer, "the body is too long, or broke off", http.StatusRequestEntityTooLarge)
		return
	}
	delivery := request.Header.Get("X-Service-Webhook-Id")
	err = verify(r.secret, request.Header.Get("X-Service-Signature"), body, time.Now().Unix())
	if err == nil && delivery == "" {
		err = errors.New("X-Service-Webhook-Id is missing")
	}
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	r.oneAtATime.Lock()
	defer r.oneAtATime.Unlock()
	if r.seen[delivery] {
		io.WriteString(answer, "seen before") // 2xx, or it comes again
		return
	}
	if err := process(body); err != nil {
		log.Println("processing failed:", err)
		http.Error(answer, "processing failed", http.StatusInternalServerError)
		return
	}
	r.seen[delivery] = true // only now: what failed has to come again
	io.WriteString(answer, "received")
}

func main() {
	secret, port := os.Getenv("SIGNING_SECRET"), os.Getenv("PORT")
	if !regexp.MustCompile("^whsec_[0-9a-f]{64}$").MatchString(secret) {
		log.Fatal("SIGNING_SECRET is missing, or is not what was shown: whsec_ and 64 characters")
	}
	if port == "" {
		port = "8000"
	}
	log.Println("listening on port", port)
	server := http.Server{
		Addr:        "127.0.0.1:" + port,
		Handler:     &receiver{secret: secret, seen: map[string]bool{}},
		ReadTimeout: 10 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}
