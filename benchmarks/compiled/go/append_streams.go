// Appends on streams of GatewayService and prints one JSON line: messages/s of the measured time, all messages, and this
// process's CPU for a message in microseconds.
//
//	HOST:PORT TOPIC STREAMS WINDOW BODY_BYTES BATCH WARM_SECONDS SECONDS
//
// All streams are on one connection, with WINDOW requests of BATCH messages under way on each. A request is encoded once;
// later ones are its bytes with the numbers of their keys in it, so that the services are measured and not this client.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	gateway "example.org/orders/gen/reput/gateway/v1"
	message "example.org/orders/gen/reput/message/v1"
)

const (
	firstAnswerMax = 30 * time.Second
	drainMax       = 60 * time.Second
	keyDigits      = 12
	keyPrefix      = "key-"
)

// raw is a codec for bytes that are encoded already.
type raw struct{}

func (raw) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }

func (raw) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = data
	return nil
}

func (raw) Name() string { return "proto" }

type load struct {
	connection  *grpc.ClientConn
	encoded     []byte
	keyPlaces   []int // where the digits of the keys begin in `encoded`
	window      int
	sequence    atomic.Int64
	appendCount atomic.Int64
	over        atomic.Bool
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 9 {
		log.Fatal("usage: append_streams HOST:PORT TOPIC STREAMS WINDOW BODY_BYTES BATCH WARM_SECONDS SECONDS")
	}
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(arguments []string) error {
	numbers := make([]float64, len(arguments))
	for i := 2; i < len(arguments); i++ {
		number, err := strconv.ParseFloat(arguments[i], 64)
		if err != nil {
			return err
		}
		numbers[i] = number
	}
	connection, err := grpc.NewClient(arguments[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	streamCount := int(numbers[2])
	appends := &load{connection: connection, window: int(numbers[3])}
	if err := appends.encode(arguments[1], int(numbers[4]), int(numbers[5])); err != nil {
		return err
	}
	ended := make(chan error, streamCount)
	for range streamCount {
		go func() { ended <- appends.send() }()
	}
	return appends.measure(ended, streamCount, seconds(numbers[6]), seconds(numbers[7]))
}

func seconds(number float64) time.Duration { return time.Duration(number * float64(time.Second)) }

func (l *load) encode(topic string, bodyBytes, batch int) error {
	body := make([]byte, bodyBytes)
	rand.New(rand.NewSource(1)).Read(body)
	request := &gateway.AppendMessageStreamRequest{Flush: message.FlushMode_FLUSH_MODE_ASYNC}
	for range batch {
		request.Messages = append(request.Messages, &message.NewMessage{
			Topic: topic, Body: body, Keys: []string{keyOf(0)}, Tags: "TagA",
		})
	}
	encoded, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	l.encoded = encoded
	for from := 0; ; {
		found := bytes.Index(encoded[from:], []byte(keyOf(0)))
		if found < 0 {
			break
		}
		l.keyPlaces = append(l.keyPlaces, from+found+len(keyPrefix))
		from += found + len(keyPrefix) + keyDigits
	}
	if len(l.keyPlaces) != batch {
		return fmt.Errorf("%d keys instead of %d", len(l.keyPlaces), batch)
	}
	return nil
}

func keyOf(number int64) string { return fmt.Sprintf("%s%0*d", keyPrefix, keyDigits, number) }

func (l *load) measure(ended <-chan error, streamCount int, warm, measured time.Duration) error {
	for begun := time.Now(); l.appendCount.Load() == 0 && time.Since(begun) < firstAnswerMax; {
		select {
		case err := <-ended:
			return err
		case <-time.After(10 * time.Millisecond): // connecting is not measured
		}
	}
	time.Sleep(warm)
	first, begin := l.appendCount.Load(), time.Now()
	time.Sleep(measured)
	count, took := l.appendCount.Load()-first, time.Since(begin)
	l.over.Store(true)
	for range streamCount {
		if err := <-ended; err != nil {
			return err
		}
	}
	if count == 0 {
		return errors.New("nothing was answered in the measured time")
	}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return err
	}
	total := l.appendCount.Load()
	cpuMicros := float64(used.Utime.Nano()+used.Stime.Nano()) / 1e3 / float64(total)
	fmt.Printf("{\"rate\": %.1f, \"count\": %d, \"cpu_micros\": %.3f}\n", float64(count)/took.Seconds(), total, cpuMicros)
	return nil
}

// send appends on one stream until the load is over.
func (l *load) send() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	description := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := l.connection.NewStream(
		ctx, description, gateway.GatewayService_AppendMessageStream_FullMethodName, grpc.ForceCodec(raw{}),
	)
	if err != nil {
		return err
	}
	free := make(chan []byte, l.window) // an answered request is written: its bytes are free
	for range l.window {
		free <- bytes.Clone(l.encoded)
	}
	sent := make(chan []byte, l.window)
	read := make(chan error, 1)
	go func() { read <- l.receive(stream, sent, free) }()
	for !l.over.Load() {
		select {
		case err := <-read:
			return err
		case request := <-free:
			l.number(request)
			sent <- request
			if err := stream.SendMsg(&request); err != nil {
				return errors.Join(err, <-read) // the reader knows the cause
			}
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	close(sent)
	select {
	case err := <-read:
		return err
	case <-time.After(drainMax):
		return errors.New("answers are missing")
	}
}

// number writes new keys into a request.
func (l *load) number(request []byte) {
	last := l.sequence.Add(int64(len(l.keyPlaces)))
	for i, place := range l.keyPlaces {
		number := last - int64(i)
		for digit := place + keyDigits - 1; digit >= place; digit-- {
			request[digit] = byte('0' + number%10)
			number /= 10
		}
	}
}

func (l *load) receive(stream grpc.ClientStream, sent <-chan []byte, free chan<- []byte) error {
	for request := range sent {
		var answer []byte
		if err := stream.RecvMsg(&answer); err != nil {
			return err
		}
		count, err := resultCount(answer)
		if err != nil {
			return err
		}
		l.appendCount.Add(int64(count))
		free <- request
	}
	return nil
}

// resultCount counts the receipts of an encoded AppendMessageStreamResponse; a refusal is an error.
func resultCount(answer []byte) (int, error) {
	count := 0
	for len(answer) > 0 {
		field, kind, size := protowire.ConsumeTag(answer)
		if size < 0 {
			return 0, protowire.ParseError(size)
		}
		length := protowire.ConsumeFieldValue(field, kind, answer[size:])
		if length < 0 {
			return 0, protowire.ParseError(length)
		}
		if field == 1 {
			count++
		} else {
			return 0, fmt.Errorf("an append was refused: %q", answer[size:size+length])
		}
		answer = answer[size+length:]
	}
	return count, nil
}
