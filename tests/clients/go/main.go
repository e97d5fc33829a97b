// The official Go client behind the line protocol of tests/clients/programs.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

type order struct {
	Role         string `json:"role"`
	Endpoint     string `json:"endpoint"`
	AccessKey    string `json:"access_key"`
	Secret       string `json:"secret"`
	Topic        string `json:"topic"`
	Group        string `json:"group"`
	Tag          string `json:"tag"`
	SQL          string `json:"sql"`
	Hold         bool   `json:"hold"`
	AwaitSeconds int    `json:"await_seconds"`
	Checker      string `json:"checker"`
}

type line struct {
	Body             string            `json:"body"`
	Tag              string            `json:"tag"`
	Keys             []string          `json:"keys"`
	Properties       map[string]string `json:"properties"`
	MessageGroup     string            `json:"message_group"`
	Priority         *int32            `json:"priority"`
	LiteTopic        string            `json:"lite_topic"`
	DeliverAtSeconds int64             `json:"deliver_at_seconds"`
	Transaction      string            `json:"transaction"`
	RecallHandle     string            `json:"recall_handle"`
	Do               string            `json:"do"`
	Batch            int32             `json:"batch"`
	InvisibleSeconds int               `json:"invisible_seconds"`
	MessageID        string            `json:"message_id"`
}

// Of a message of a lite topic; this client does not renew it. The least that RocketMQ takes.
const invisible = 10 * time.Second

type said map[string]any

var (
	saying sync.Mutex
	input  = bufio.NewScanner(os.Stdin)
)

func main() {
	rmq.EnableSsl = false
	var given order
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		fail(err)
	}
	roles := map[string]func(order) error{"send": send, "push": push, "lite": lite, "simple": simple}
	if err := roles[given.Role](given); err != nil {
		fail(err)
	}
	say("stopped", said{})
}

func send(given order) error {
	options := []rmq.ProducerOption{rmq.WithTopics(given.Topic)}
	if given.Checker != "" {
		verdict := map[string]rmq.TransactionResolution{"COMMIT": rmq.COMMIT, "ROLLBACK": rmq.ROLLBACK}[given.Checker]
		check := func(message *rmq.MessageView) rmq.TransactionResolution {
			say("checked", describe(message))
			return verdict
		}
		options = append(options, rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: check}))
	}
	producer, err := rmq.NewProducer(configuration(given), options...)
	if err != nil {
		return err
	}
	if err = producer.Start(); err != nil {
		return err
	}
	say("started", said{})
	for next, more := read(); more; next, more = read() {
		if next.Do == "recall" {
			messageID, err := producer.Recall(context.Background(), given.Topic, next.RecallHandle)
			answer("recalled", said{"message_id": messageID}, err)
			continue
		}
		message := &rmq.Message{Topic: given.Topic, Body: []byte(next.Body)}
		if next.Tag != "" {
			message.SetTag(next.Tag)
		}
		message.SetKeys(next.Keys...)
		for name, value := range next.Properties {
			message.AddProperty(name, value)
		}
		if next.MessageGroup != "" {
			message.SetMessageGroup(next.MessageGroup)
		}
		if next.Priority != nil {
			message.SetPriority(*next.Priority)
		}
		if next.LiteTopic != "" {
			message.SetLiteTopic(next.LiteTopic)
		}
		if next.DeliverAtSeconds != 0 {
			message.SetDelayTimestamp(time.Unix(next.DeliverAtSeconds, 0))
		}
		receipt, err := sendOne(producer, message, next.Transaction)
		if err != nil {
			return err
		}
		say("sent", said{"message_id": receipt.MessageID, "recall_handle": receipt.RecallHandle})
	}
	return producer.GracefulStop()
}

func sendOne(producer rmq.Producer, message *rmq.Message, verdict string) (*rmq.SendReceipt, error) {
	if verdict == "" {
		receipts, err := producer.Send(context.Background(), message)
		if err != nil {
			return nil, err
		}
		return receipts[0], nil
	}
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.Background(), message, transaction)
	if err != nil {
		return nil, err
	}
	switch verdict {
	case "commit":
		err = transaction.Commit()
	case "rollback":
		err = transaction.RollBack()
	}
	return receipts[0], err
}

func listener(given order) rmq.PushConsumerOption {
	var counting sync.Mutex
	calls := map[string]int{}
	consume := func(message *rmq.MessageView) rmq.ConsumerResult {
		failCount, _ := strconv.Atoi(message.GetProperties()["fails"])
		counting.Lock()
		calls[message.GetMessageId()]++
		fails := calls[message.GetMessageId()] <= failCount
		counting.Unlock()
		result, outcome := rmq.SUCCESS, "success"
		if fails {
			result, outcome = rmq.FAILURE, "failure"
		}
		if given.Hold {
			outcome = "held"
		}
		described := describe(message)
		described["outcome"] = outcome
		say("received", described)
		if given.Hold {
			select {}
		}
		return result
	}
	return rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume})
}

func push(given order) error {
	consumer, err := rmq.NewPushConsumer(
		configuration(given), rmq.WithPushSubscriptionExpressions(subscription(given)), listener(given),
	)
	if err != nil {
		return err
	}
	if err = consumer.Start(); err != nil {
		return err
	}
	say("started", said{})
	for _, more := read(); more; _, more = read() {
	}
	return consumer.GracefulStop()
}

func lite(given order) error {
	bound := rmq.NewLitePushConsumerConfig(given.Topic, invisible)
	consumer, err := rmq.NewLitePushConsumer(configuration(given), bound, listener(given))
	if err != nil {
		return err
	}
	if err = consumer.Start(); err != nil {
		return err
	}
	say("started", said{})
	for next, more := read(); more; next, more = read() {
		if next.Do == "subscribe" {
			answer("subscribed", said{}, consumer.SubscribeLite(next.LiteTopic))
		} else {
			answer("subscribed", said{}, consumer.UnSubscribeLite(next.LiteTopic))
		}
	}
	return consumer.GracefulStop()
}

func simple(given order) error {
	consumer, err := rmq.NewSimpleConsumer(
		configuration(given),
		rmq.WithSimpleAwaitDuration(time.Duration(given.AwaitSeconds)*time.Second),
		rmq.WithSimpleSubscriptionExpressions(subscription(given)),
	)
	if err != nil {
		return err
	}
	if err = consumer.Start(); err != nil {
		return err
	}
	say("started", said{})
	held := map[string]*rmq.MessageView{}
	for next, more := read(); more; next, more = read() {
		invisible := time.Duration(next.InvisibleSeconds) * time.Second
		switch next.Do {
		case "receive":
			messages, err := consumer.Receive(context.Background(), next.Batch, invisible)
			if status, is := rmq.AsErrRpcStatus(err); is && status.Code == int32(v2.Code_MESSAGE_NOT_FOUND) {
				err = nil // how this client says that there is none
			}
			batch := []said{}
			for _, message := range messages {
				held[message.GetMessageId()] = message
				batch = append(batch, describe(message))
			}
			answer("batch", said{"messages": batch}, err)
		case "ack":
			answer("acked", said{}, consumer.Ack(context.Background(), held[next.MessageID]))
		default:
			answer("changed", said{}, consumer.ChangeInvisibleDuration(held[next.MessageID], invisible))
		}
	}
	return consumer.GracefulStop()
}

func configuration(given order) *rmq.Config {
	return &rmq.Config{
		Endpoint: given.Endpoint, ConsumerGroup: given.Group,
		Credentials: &credentials.SessionCredentials{AccessKey: given.AccessKey, AccessSecret: given.Secret},
	}
}

func subscription(given order) map[string]*rmq.FilterExpression {
	expression := rmq.SUB_ALL
	if given.Tag != "" {
		expression = rmq.NewFilterExpression(given.Tag)
	}
	if given.SQL != "" {
		expression = rmq.NewFilterExpressionWithType(given.SQL, rmq.SQL92)
	}
	return map[string]*rmq.FilterExpression{given.Topic: expression}
}

func describe(message *rmq.MessageView) said {
	return said{
		"message_id":    message.GetMessageId(),
		"topic":         message.GetTopic(),
		"body":          string(message.GetBody()),
		"tag":           message.GetTag(),
		"keys":          message.GetKeys(),
		"properties":    message.GetProperties(),
		"message_group": message.GetMessageGroup(),
		"lite_topic":    message.GetLiteTopic(),
		"attempt":       message.GetDeliveryAttempt(),
	}
}

func answer(event string, content said, err error) {
	if err != nil {
		say("failed", said{"error": err.Error()})
		return
	}
	say(event, content)
}

func say(event string, content said) {
	content["event"] = event
	text, err := json.Marshal(content)
	if err != nil {
		fail(err)
	}
	saying.Lock()
	defer saying.Unlock()
	fmt.Println(string(text))
}

func read() (line, bool) {
	var next line
	if !input.Scan() {
		return next, false
	}
	if err := json.Unmarshal(input.Bytes(), &next); err != nil {
		fail(err)
	}
	return next, true
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
