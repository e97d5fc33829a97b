// Appends messages, finds them by each of the four queries, reads all pages of an answer, and consumes: ADDRESS TOPIC.
//
// REPUT_CLIENT_CA names the authority of the gateway's certificate (PEM); without it the connection has no TLS.
// REPUT_API_KEY is sent with each call.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const COUNT = 100;
const PROTOS = path.resolve(__dirname, '../../../protos'); // in a project of yours: a copy of that folder

const definition = protoLoader.loadSync('reput/gateway/v1/gateway_service.proto', {
  includeDirs: [PROTOS],
  keepCase: true,
  longs: String, // an offset may be larger than what a JavaScript number holds exactly
  enums: String,
  defaults: true,
});
const { GatewayService } = grpc.loadPackageDefinition(definition).reput.gateway.v1;

/** A client whose unary calls return promises. */
function connect(address) {
  const ca = process.env.REPUT_CLIENT_CA;
  const security = ca ? grpc.credentials.createSsl(fs.readFileSync(ca)) : grpc.credentials.createInsecure();
  const client = new GatewayService(address, security, {
    interceptors: [addKey],
    'grpc.max_receive_message_length': 8 << 20, // a page has less than 4 MiB of bodies
  });
  for (const [name, method] of Object.entries(GatewayService.service)) {
    if (!method.requestStream && !method.responseStream) {
      const call = promisify(client[name]).bind(client);
      client[name] = (request) => call(request, new grpc.Metadata(), { deadline: Date.now() + 15_000 });
    }
  }
  return client;
}

function addKey(options, nextCall) {
  return new grpc.InterceptingCall(nextCall(options), {
    start(metadata, listener, next) {
      const key = process.env.REPUT_API_KEY;
      if (key) metadata.set('authorization', `Bearer ${key}`);
      next(metadata, listener);
    },
  });
}

async function appendAll(gateway, topic, order) {
  const messages = Array.from({ length: COUNT }, (_, number) => ({
    topic,
    body: Buffer.from(`line ${number}`),
    keys: [order, `${order}-${number}`],
  }));
  const { results } = await gateway.AppendMessages({ messages, flush: 'FLUSH_MODE_SYNC' });
  console.log('appended', results.length);
  return results;
}

async function query(gateway, topic, order, receipt) {
  // With a receipt's token, a query waits until it can see that message.
  const fresh = { freshness_tokens: [receipt.freshness_token] };
  const byKey = checked(await gateway.QueryMessageByKey({ topic, key: `${order}-7`, ...fresh }));
  console.log('by key', byKey.messages.length);
  const byUniqueKey = checked(
    await gateway.QueryMessageByUniqueKey({ topic, unique_key: receipt.unique_key, ...fresh }),
  );
  console.log('by unique key', byUniqueKey.messages.length);
  const byId = await gateway.QueryMessageById({ offset_msg_id: receipt.offset_msg_id });
  console.log('by id', byId.message.body.toString());
  const { broker_name, queue_id, queue_offset } = receipt;
  const position = { topic, broker_name, queue_id, queue_offset, max_messages: 1 };
  const byOffset = checked(await gateway.QueryMessageByOffset({ ...position, ...fresh }));
  console.log('by offset', byOffset.messages.length);
}

async function readPages(gateway, topic, order, last) {
  const request = { topic, key: order, page_size: 30, freshness_tokens: [last.freshness_token] };
  let found = 0;
  do {
    const page = checked(await gateway.QueryMessageByKey(request));
    found += page.messages.length;
    request.page_token = page.next_page_token;
  } while (request.page_token); // a page may be empty and still have a token
  console.log('on all pages', found);
}

/** The answer; an error when a part of the store could not be asked: then "not found" would be no answer. */
function checked(answer) {
  if (answer.completeness !== 'COMPLETENESS_PARTIAL') return answer;
  const missing = answer.shards
    .filter((shard) => shard.error || shard.catching_up)
    .map((shard) => `${shard.broker_name}: ${shard.error ? shard.error.message : 'still building'}`);
  throw new Error(`PARTIAL: ${missing.join('; ')}`);
}

async function consume(gateway, topic, group) {
  const known = new Map();
  try {
    const { positions } = await gateway.GetOffsets({ consumer_group: group, topic });
    for (const each of positions) known.set(`${each.broker_name}/${each.queue_id}`, each.consumer_offset);
  } catch (error) {
    if (error.code !== grpc.status.NOT_FOUND) throw error; // a new group
  }
  let consumed = 0;
  const { topics } = await gateway.ListTopics({ topic });
  for (const { broker_name, queue_id, min_offset } of topics[0].queues) {
    let next = known.get(`${broker_name}/${queue_id}`) ?? min_offset;
    // With `wait` the stream would go on with what arrives.
    const request = { topic, broker_name, queue_id, queue_offset: next, consumer_group: group };
    for await (const batch of gateway.PullMessages(request)) {
      consumed += batch.messages.length; // work on them, then commit
      next = batch.next_offset;
    }
    const positions = [{ topic, broker_name, queue_id, consumer_offset: next }];
    await gateway.CommitOffsets({ consumer_group: group, positions });
  }
  console.log('consumed', consumed);
}

async function main(address, topic) {
  const gateway = connect(address);
  const order = `order-${Date.now()}-${process.pid}`;
  const receipts = await appendAll(gateway, topic, order);
  await query(gateway, topic, order, receipts[7]);
  await readPages(gateway, topic, order, receipts[COUNT - 1]);
  await consume(gateway, topic, `${topic}-readers`);
  await consume(gateway, topic, `${topic}-readers`); // the group goes on where it stopped
  gateway.close();
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
