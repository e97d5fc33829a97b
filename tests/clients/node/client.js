// The official Node client behind the line protocol of tests/clients/programs.py.
'use strict';

const readline = require('node:readline');
const {
  ConsumeResult, FilterExpression, LitePushConsumerBuilder, OffsetOption, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const order = JSON.parse(process.argv[2]);
const server = { endpoints: order.endpoint };
if (order.access_key) {
  server.sessionCredentials = { accessKey: order.access_key, accessSecret: order.secret };
}
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function say(event, said = {}) {
  process.stdout.write(`${JSON.stringify({ event, ...said })}\n`);
}

async function read() {
  const { value, done } = await lines.next();
  return done ? null : JSON.parse(value);
}

function filter() {
  return 'sql' in order
    ? new FilterExpression(order.sql, FilterType.SQL)
    : new FilterExpression(order.tag ?? '*', FilterType.TAG);
}

function described(message) {
  return {
    message_id: message.messageId,
    topic: message.topic,
    body: message.body.toString(),
    tag: message.tag || null,
    keys: message.keys,
    properties: Object.fromEntries(message.properties),
    message_group: message.messageGroup || null,
    priority: message.priority,
    lite_topic: message.liteTopic || null,
    attempt: message.deliveryAttempt,
  };
}

async function send() {
  const checker = order.checker && {
    async check(message) {
      say('checked', described(message));
      return TransactionResolution[order.checker] ?? TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED;
    },
  };
  const producer = new Producer({ ...server, topic: order.topic, checker });
  await producer.startup();
  say('started');
  for (let line = await read(); line; line = await read()) {
    if (line.do === 'recall') {
      try {
        const recalled = await producer.recallMessage(order.topic, line.recall_handle);
        say('recalled', { message_id: recalled.messageId });
      } catch (error) {
        say('failed', { error: String(error) });
      }
      continue;
    }
    const transaction = line.transaction && producer.beginTransaction();
    const receipt = await producer.send({
      topic: order.topic,
      body: Buffer.from(line.body),
      tag: line.tag,
      keys: line.keys,
      properties: line.properties && new Map(Object.entries(line.properties)),
      messageGroup: line.message_group,
      priority: line.priority,
      liteTopic: line.lite_topic,
      deliveryTimestamp: line.deliver_at_seconds && new Date(line.deliver_at_seconds * 1000),
    }, transaction);
    if (line.transaction === 'commit') {
      await transaction.commit();
    } else if (line.transaction === 'rollback') {
      await transaction.rollback();
    }
    say('sent', { message_id: receipt.messageId, recall_handle: receipt.recallHandle });
  }
  await producer.shutdown();
}

function listener() {
  const calls = new Map();
  return {
    async consume(message) {
      const count = (calls.get(message.messageId) ?? 0) + 1;
      calls.set(message.messageId, count);
      const fails = count <= Number(message.properties.get('fails') ?? 0);
      say('received', { ...described(message), outcome: order.hold ? 'held' : fails ? 'failure' : 'success' });
      if (order.hold) {
        await new Promise(() => {});
      }
      return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
}

async function push() {
  const subscriptions = new Map([[order.topic, filter()]]);
  const consumer = new PushConsumer({
    ...server, consumerGroup: order.group, subscriptions, messageListener: listener(),
  });
  await consumer.startup();
  say('started');
  while (await read());
  await consumer.shutdown();
}

function offsetOption(line) {
  const of = {
    min: () => OffsetOption.MIN_OFFSET,
    max: () => OffsetOption.MAX_OFFSET,
    offset: () => OffsetOption.ofOffset(line.number),
    tail: () => OffsetOption.ofTailN(line.number),
    time: () => OffsetOption.ofTimestamp(line.number),
  };
  return (of[line.from] ?? (() => OffsetOption.LAST_OFFSET))();
}

async function lite() {
  const consumer = await new LitePushConsumerBuilder()
    .setClientConfiguration(server)
    .setConsumerGroup(order.group)
    .bindTopic(order.topic)
    .setMessageListener(listener())
    .build();
  say('started');
  for (let line = await read(); line; line = await read()) {
    try {
      if (line.do === 'subscribe') {
        await consumer.subscribeLite(line.lite_topic, offsetOption(line));
      } else if (line.do === 'unsubscribe') {
        await consumer.unsubscribeLite(line.lite_topic);
      }
      say('subscribed', { lite_topics: [...consumer.getLiteTopicSet()].sort() });
    } catch (error) {
      say('failed', { error: String(error) });
    }
  }
  await consumer.close();
}

async function simple() {
  const held = new Map();
  const subscriptions = new Map([[order.topic, filter()]]);
  const consumer = new SimpleConsumer({
    ...server, consumerGroup: order.group, subscriptions, awaitDuration: order.await_seconds * 1000,
  });
  await consumer.startup();
  say('started');
  for (let line = await read(); line; line = await read()) {
    try {
      if (line.do === 'receive') {
        const messages = await consumer.receive(line.batch, line.invisible_seconds * 1000);
        messages.forEach(message => held.set(message.messageId, message));
        say('batch', { messages: messages.map(described) });
      } else if (line.do === 'ack') {
        await consumer.ack(held.get(line.message_id));
        say('acked');
      } else {
        await consumer.changeInvisibleDuration(held.get(line.message_id), line.invisible_seconds * 1000);
        say('changed');
      }
    } catch (error) {
      say('failed', { error: String(error) });
    }
  }
  await consumer.shutdown();
}

({ send, push, lite, simple })[order.role]().then(() => {
  process.stdout.write('{"event": "stopped"}\n', () => process.exit(0));
}, error => {
  console.error(error);
  process.exit(1);
});
