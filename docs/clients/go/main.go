// Appends messages, finds them by each of the four queries, reads all pages of an answer, and consumes: ADDRESS TOPIC.
//
// REPUT_CLIENT_CA names the authority of the gateway's certificate (PEM); without it the connection has no TLS.
// REPUT_API_KEY is sent with each call.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	gateway "example.org/orders/gen/reput/gateway/v1"
	message "example.org/orders/gen/reput/message/v1"
)

const count = 100

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: orders ADDRESS TOPIC")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address, topic string) error {
	security := insecure.NewCredentials()
	if ca := os.Getenv("REPUT_CLIENT_CA"); ca != "" {
		var err error
		if security, err = credentials.NewClientTLSFromFile(ca, ""); err != nil {
			return err
		}
	}
	if key := os.Getenv("REPUT_API_KEY"); key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(security))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := gateway.NewGatewayServiceClient(connection)

	order := fmt.Sprintf("order-%d", time.Now().UnixNano())
	receipts, err := appendAll(ctx, client, topic, order)
	if err != nil {
		return err
	}
	if err := query(ctx, client, topic, order, receipts[7]); err != nil {
		return err
	}
	if err := readPages(ctx, client, topic, order, receipts[count-1]); err != nil {
		return err
	}
	// The second time the group goes on where it stopped.
	for range 2 {
		if err := consume(ctx, client, topic, topic+"-readers"); err != nil {
			return err
		}
	}
	return nil
}

func appendAll(ctx context.Context, client gateway.GatewayServiceClient, topic, order string) ([]*message.AppendResult, error) {
	request := &gateway.AppendMessagesRequest{Flush: message.FlushMode_FLUSH_MODE_SYNC}
	for number := range count {
		request.Messages = append(request.Messages, &message.NewMessage{
			Topic: topic,
			Body:  fmt.Appendf(nil, "line %d", number),
			Keys:  []string{order, fmt.Sprintf("%s-%d", order, number)},
		})
	}
	answer, err := client.AppendMessages(ctx, request)
	if err != nil {
		return nil, err
	}
	fmt.Println("appended", len(answer.Results))
	return answer.Results, nil
}

func query(ctx context.Context, client gateway.GatewayServiceClient, topic, order string, receipt *message.AppendResult) error {
	// With a receipt's token, a query waits until it can see that message.
	fresh := []string{receipt.FreshnessToken}
	byKey, err := client.QueryMessageByKey(ctx, &gateway.QueryMessageByKeyRequest{
		Topic: topic, Key: order + "-7", FreshnessTokens: fresh,
	})
	if err != nil {
		return err
	}
	if err := whole(byKey.Completeness, byKey.Shards); err != nil {
		return err
	}
	fmt.Println("by key", len(byKey.Messages))
	byUniqueKey, err := client.QueryMessageByUniqueKey(ctx, &gateway.QueryMessageByUniqueKeyRequest{
		Topic: topic, UniqueKey: receipt.UniqueKey, FreshnessTokens: fresh,
	})
	if err != nil {
		return err
	}
	if err := whole(byUniqueKey.Completeness, byUniqueKey.Shards); err != nil {
		return err
	}
	fmt.Println("by unique key", len(byUniqueKey.Messages))
	byID, err := client.QueryMessageById(ctx, &gateway.QueryMessageByIdRequest{OffsetMsgId: receipt.OffsetMsgId})
	if err != nil {
		return err
	}
	fmt.Println("by id", string(byID.Message.Body))
	byOffset, err := client.QueryMessageByOffset(ctx, &gateway.QueryMessageByOffsetRequest{
		Topic: topic, BrokerName: receipt.BrokerName, QueueId: receipt.QueueId, QueueOffset: receipt.QueueOffset,
		MaxMessages: 1, FreshnessTokens: fresh,
	})
	if err != nil {
		return err
	}
	if err := whole(byOffset.Completeness, byOffset.Shards); err != nil {
		return err
	}
	fmt.Println("by offset", len(byOffset.Messages))
	return nil
}

func readPages(ctx context.Context, client gateway.GatewayServiceClient, topic, order string, last *message.AppendResult) error {
	request := &gateway.QueryMessageByKeyRequest{
		Topic: topic, Key: order, PageSize: 30, FreshnessTokens: []string{last.FreshnessToken},
	}
	found := 0
	for {
		page, err := client.QueryMessageByKey(ctx, request)
		if err != nil {
			return err
		}
		if err := whole(page.Completeness, page.Shards); err != nil {
			return err
		}
		found += len(page.Messages)
		// A page may be empty and still have a token.
		if page.NextPageToken == "" {
			fmt.Println("on all pages", found)
			return nil
		}
		request.PageToken = page.NextPageToken
	}
}

// whole is an error when a part of the store could not be asked: then "not found" would be no answer.
func whole(completeness message.Completeness, shards []*gateway.ShardOutcome) error {
	if completeness != message.Completeness_COMPLETENESS_PARTIAL {
		return nil
	}
	var missing []string
	for _, shard := range shards {
		if shard.Error != nil {
			missing = append(missing, shard.BrokerName+": "+shard.Error.Message)
		} else if shard.CatchingUp {
			missing = append(missing, shard.BrokerName+": still building")
		}
	}
	return fmt.Errorf("PARTIAL: %s", strings.Join(missing, "; "))
}

func consume(ctx context.Context, client gateway.GatewayServiceClient, topic, group string) error {
	topics, err := client.ListTopics(ctx, &gateway.ListTopicsRequest{Topic: topic})
	if err != nil {
		return err
	}
	positions, err := client.GetOffsets(ctx, &gateway.GetOffsetsRequest{ConsumerGroup: group, Topic: topic})
	if err != nil && status.Code(err) != codes.NotFound { // a new group
		return err
	}
	known := map[string]int64{}
	for _, position := range positions.GetPositions() {
		known[fmt.Sprint(position.BrokerName, "/", position.QueueId)] = position.ConsumerOffset
	}
	consumed := 0
	for _, queue := range topics.Topics[0].Queues {
		next, ok := known[fmt.Sprint(queue.BrokerName, "/", queue.QueueId)]
		if !ok {
			next = queue.MinOffset
		}
		// With Wait the stream would go on with what arrives.
		stream, err := client.PullMessages(ctx, &gateway.PullMessagesRequest{
			Topic: topic, BrokerName: queue.BrokerName, QueueId: queue.QueueId, QueueOffset: next, ConsumerGroup: group,
		})
		if err != nil {
			return err
		}
		for {
			batch, err := stream.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			consumed += len(batch.Messages) // work on them, then commit
			next = batch.NextOffset
		}
		position := &gateway.QueuePosition{
			Topic: topic, BrokerName: queue.BrokerName, QueueId: queue.QueueId, ConsumerOffset: next,
		}
		if _, err := client.CommitOffsets(ctx, &gateway.CommitOffsetsRequest{
			ConsumerGroup: group, Positions: []*gateway.QueuePosition{position},
		}); err != nil {
			return err
		}
	}
	fmt.Println("consumed", consumed)
	return nil
}
