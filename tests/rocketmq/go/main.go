// Sends messages by the official Go client: GATEWAY TOPIC COUNT; prints message id and body number, tab-separated.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func main() {
	if err := send(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func send(gateway, topic, countText string) error {
	count, err := strconv.Atoi(countText)
	if err != nil {
		return err
	}
	rmq.EnableSsl = false
	config := &rmq.Config{Endpoint: gateway, Credentials: &credentials.SessionCredentials{}}
	producer, err := rmq.NewProducer(config, rmq.WithTopics(topic))
	if err != nil {
		return err
	}
	if err = producer.Start(); err != nil {
		return err
	}
	defer producer.GracefulStop()
	for number := 0; number < count; number++ {
		message := &rmq.Message{Topic: topic, Body: []byte(fmt.Sprintf("body %d 你好", number))}
		message.SetTag("TagA")
		message.SetKeys(fmt.Sprintf("key-%d", number), "all")
		message.AddProperty("colour", "red")
		if number%2 == 1 {
			message.SetMessageGroup(fmt.Sprintf("group-%d", number%3))
		}
		receipts, err := producer.Send(context.TODO(), message)
		if err != nil {
			return err
		}
		for _, receipt := range receipts {
			fmt.Printf("RECEIPT\t%s\t%d\n", receipt.MessageID, number)
		}
	}
	return nil
}
