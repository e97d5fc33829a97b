// The official client for Go over remoting: one line for each case, NAME<tab>RESULT.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	nameserver = []string{os.Args[1]}
	door       = os.Args[2]
	wait       = 150 * time.Second  // a hang
	atOnce     = make(chan bool, 4) // each case has clients of its own, whose limits of one and three seconds are fixed
)

type bag struct {
	sync.Mutex
	bodies []string
}

func (b *bag) add(body string) { b.Lock(); b.bodies = append(b.bodies, body); b.Unlock() }
func (b *bag) count() int      { b.Lock(); defer b.Unlock(); return len(b.bodies) }
func (b *bag) sorted() string {
	b.Lock()
	defer b.Unlock()
	all := append([]string{}, b.bodies...)
	sort.Strings(all)
	return strings.Join(all, ",")
}

func until(holds func() bool) bool {
	for end := time.Now().Add(wait); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return true
		}
	}
	return false
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func newProducer(group string, options ...producer.Option) rocketmq.Producer {
	options = append(options, producer.WithNameServer(nameserver), producer.WithGroupName(group),
		producer.WithInstanceName(group), producer.WithRetry(2), producer.WithSendMsgTimeout(wait))
	made, err := rocketmq.NewProducer(options...)
	must(err)
	must(made.Start())
	return made
}

type listener func(*primitive.MessageExt) consumer.ConsumeResult

func newPush(group, topic string, selector consumer.MessageSelector, listen listener, options ...consumer.Option) rocketmq.PushConsumer {
	options = append(options, consumer.WithNameServer(nameserver), consumer.WithGroupName(group),
		consumer.WithInstance(group+fmt.Sprint(time.Now().UnixNano())), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	made, err := rocketmq.NewPushConsumer(options...)
	must(err)
	must(made.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		for _, message := range messages {
			if one := listen(message); one != consumer.ConsumeSuccess {
				result = one
			}
		}
		return result, nil
	}))
	must(made.Start())
	return made
}

func send(p rocketmq.Producer, topic string, count int) {
	for i := 0; i < count; i++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("m%d", i)))
		message.WithTag([]string{"A", "B"}[i%2]).WithKeys([]string{fmt.Sprintf("k%d", i)}).WithProperty("n", fmt.Sprint(i))
		_, err := p.SendSync(context.Background(), message)
		must(err)
	}
}

func received(topic string, count int, selector consumer.MessageSelector, options ...consumer.Option) string {
	got := &bag{}
	c := newPush("go-"+topic, topic, selector, func(m *primitive.MessageExt) consumer.ConsumeResult {
		got.add(string(m.Body))
		return consumer.ConsumeSuccess
	}, options...)
	until(func() bool { return got.count() >= count })
	time.Sleep(300 * time.Millisecond)
	must(c.Shutdown())
	return got.sorted()
}

var cases = map[string]func(topic string, p rocketmq.Producer) string{
	"send": func(topic string, p rocketmq.Producer) string {
		result, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte("x")))
		must(err)
		return fmt.Sprint(result.Status, " ", len(result.OffsetMsgID), " ", result.QueueOffset)
	},
	"async": func(topic string, p rocketmq.Producer) string {
		done := make(chan string, 1)
		must(p.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			if err != nil {
				done <- err.Error()
			} else {
				done <- fmt.Sprint(result.Status)
			}
		}, primitive.NewMessage(topic, []byte("x"))))
		return <-done
	},
	"oneway": func(topic string, p rocketmq.Producer) string {
		must(p.SendOneWay(context.Background(), primitive.NewMessage(topic, []byte("x"))))
		return received(topic, 1, consumer.MessageSelector{})
	},
	"batch": func(topic string, p rocketmq.Producer) string {
		var messages []*primitive.Message
		for i := 0; i < 5; i++ {
			messages = append(messages, primitive.NewMessage(topic, []byte(fmt.Sprintf("b%d", i))))
		}
		result, err := p.SendSync(context.Background(), messages...)
		must(err)
		return fmt.Sprint(result.Status, " ", received(topic, 5, consumer.MessageSelector{}))
	},
	"compressed": func(topic string, p rocketmq.Producer) string {
		_, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte(strings.Repeat("abc", 5000))))
		must(err)
		return fmt.Sprint(received(topic, 1, consumer.MessageSelector{}) == strings.Repeat("abc", 5000))
	},
	"push": func(topic string, p rocketmq.Producer) string {
		send(p, topic, 8)
		return received(topic, 8, consumer.MessageSelector{})
	},
	"tags": func(topic string, p rocketmq.Producer) string {
		send(p, topic, 6)
		return received(topic, 3, consumer.MessageSelector{Type: consumer.TAG, Expression: "B"})
	},
	"sql": func(topic string, p rocketmq.Producer) string {
		send(p, topic, 6)
		return received(topic, 2, consumer.MessageSelector{Type: consumer.SQL92, Expression: "n > 3"})
	},
	"orderly": func(topic string, p rocketmq.Producer) string {
		send(p, topic, 8)
		return received(topic, 8, consumer.MessageSelector{}, consumer.WithConsumerOrder(true))
	},
	"broadcast": func(topic string, p rocketmq.Producer) string {
		send(p, topic, 4)
		return received(topic, 4, consumer.MessageSelector{}, consumer.WithConsumerModel(consumer.BroadCasting))
	},
	"delay": func(topic string, p rocketmq.Producer) string {
		message := primitive.NewMessage(topic, []byte("x"))
		message.WithDelayTimeLevel(1)
		begin := time.Now()
		_, err := p.SendSync(context.Background(), message)
		must(err)
		return fmt.Sprint(received(topic, 1, consumer.MessageSelector{}), " ", time.Since(begin) > 900*time.Millisecond)
	},
	"transaction": func(topic string, p rocketmq.Producer) string {
		t, err := rocketmq.NewTransactionProducer(&verdicts{}, producer.WithNameServer(nameserver),
			producer.WithGroupName("tx-"+topic), producer.WithInstanceName("tx-"+topic))
		must(err)
		must(t.Start())
		for _, body := range []string{"commit", "rollback"} {
			_, err := t.SendMessageInTransaction(context.Background(), primitive.NewMessage(topic, []byte(body)))
			must(err)
		}
		got := received(topic, 1, consumer.MessageSelector{})
		must(t.Shutdown())
		return got
	},
	"pull": func(topic string, p rocketmq.Producer) string {
		send(p, topic, 4)
		c, err := rocketmq.NewPullConsumer(consumer.WithNameServer(nameserver), consumer.WithGroupName("go-"+topic),
			consumer.WithInstance("go-"+topic), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
		must(err)
		must(c.Subscribe(topic, consumer.MessageSelector{}))
		must(c.Start())
		got := &bag{}
		until(func() bool {
			found, err := c.Poll(context.Background(), time.Second)
			if err == nil {
				for _, message := range found.GetMsgList() {
					got.add(string(message.Body))
				}
				c.ACK(context.Background(), found, consumer.ConsumeSuccess)
			}
			return got.count() >= 4
		})
		must(c.Shutdown())
		return got.sorted()
	},
	"admin": func(topic string, p rocketmq.Producer) string {
		a, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(nameserver)))
		must(err)
		must(a.CreateTopic(context.Background(), admin.WithTopicCreate(topic+"X"), admin.WithBrokerAddrCreate(door), admin.WithReadQueueNums(3), admin.WithWriteQueueNums(3)))
		until(func() bool {
			queues, err := a.FetchPublishMessageQueues(context.Background(), topic+"X")
			return err == nil && len(queues) == 3
		})
		queues, err := a.FetchPublishMessageQueues(context.Background(), topic+"X")
		must(err)
		all, err := a.FetchAllTopicList(context.Background())
		must(err)
		has := false
		for _, name := range all.TopicList {
			has = has || name == topic+"X"
		}
		must(a.DeleteTopic(context.Background(), admin.WithTopicDelete(topic+"X"), admin.WithBrokerAddrDelete(door)))
		must(a.Close())
		return fmt.Sprint(len(queues), " ", has)
	},
	"namespace": func(topic string, _ rocketmq.Producer) string {
		p := newProducer("ns-"+topic, producer.WithNamespace("space"))
		send(p, topic, 2)
		must(p.Shutdown())
		return received(topic, 2, consumer.MessageSelector{}, consumer.WithNamespace("space"))
	},
}

type verdicts struct{}

func (*verdicts) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	if string(message.Body) == "commit" {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (*verdicts) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.UnknowState
}

func main() {
	rlog.SetLogLevel("error")
	p := newProducer("go-producer")
	var all sync.WaitGroup
	for name, run := range cases {
		all.Add(1)
		go func() {
			defer all.Done()
			atOnce <- true
			defer func() { <-atOnce }()
			defer func() {
				if problem := recover(); problem != nil {
					fmt.Printf("CASE\t%s\tFAILED %v\n", name, problem)
				}
			}()
			begin := time.Now()
			result := run("Go-"+name, p)
			fmt.Printf("CASE\t%s\t%s\t%d\n", name, result, time.Since(begin).Milliseconds())
		}()
	}
	all.Wait()
	p.Shutdown()
	os.Exit(0)
}
