//! Appends messages, finds them by each of the four queries, reads all pages of an answer, and consumes: ADDRESS TOPIC.
//!
//! REPUT_CLIENT_CA names the authority of the gateway's certificate (PEM); without it the connection has no TLS.
//! REPUT_API_KEY is sent with each call.

use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs};

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

#[allow(clippy::all)]
mod protos {
    tonic::include_proto!("protos");
}

use protos::reput::gateway::v1::gateway_service_client::GatewayServiceClient;
use protos::reput::gateway::v1::*;
use protos::reput::message::v1::{AppendResult, Completeness, FlushMode, NewMessage};

const COUNT: usize = 100;

type Failure = Box<dyn Error>;
type Gateway = GatewayServiceClient<InterceptedService<Channel, Key>>;

/// Adds the API key to each call.
#[derive(Clone)]
struct Key(Option<MetadataValue<Ascii>>);

impl tonic::service::Interceptor for Key {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

async fn connect(address: &str) -> Result<Gateway, Failure> {
    let endpoint = match env::var("REPUT_CLIENT_CA") {
        Ok(ca) => {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(fs::read(ca)?));
            Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?
        }
        Err(_) => Endpoint::from_shared(format!("http://{address}"))?,
    };
    let channel = endpoint.timeout(Duration::from_secs(15)).connect().await?;
    let key = match env::var("REPUT_API_KEY") {
        Ok(key) => Some(format!("Bearer {key}").parse()?),
        Err(_) => None,
    };
    // A page has less than 4 MiB of bodies, and a little around them.
    Ok(GatewayServiceClient::with_interceptor(channel, Key(key)).max_decoding_message_size(8 << 20))
}

async fn append_all(gateway: &mut Gateway, topic: &str, order: &str) -> Result<Vec<AppendResult>, Failure> {
    let messages = (0..COUNT).map(|number| NewMessage {
        topic: topic.into(),
        body: format!("line {number}").into_bytes(),
        keys: vec![order.into(), format!("{order}-{number}")],
        ..Default::default()
    });
    let request = AppendMessagesRequest {
        messages: messages.collect(),
        flush: FlushMode::Sync.into(),
        ..Default::default()
    };
    let receipts = gateway.append_messages(request).await?.into_inner().results;
    println!("appended {}", receipts.len());
    Ok(receipts)
}

async fn query(gateway: &mut Gateway, topic: &str, order: &str, receipt: &AppendResult) -> Result<(), Failure> {
    // With a receipt's token, a query waits until it can see that message.
    let fresh = vec![receipt.freshness_token.clone()];
    let by_key = QueryMessageByKeyRequest {
        topic: topic.into(),
        key: format!("{order}-7"),
        freshness_tokens: fresh.clone(),
        ..Default::default()
    };
    let answer = gateway.query_message_by_key(by_key).await?.into_inner();
    check_whole(answer.completeness(), &answer.shards)?;
    println!("by key {}", answer.messages.len());
    let by_unique_key = QueryMessageByUniqueKeyRequest {
        topic: topic.into(),
        unique_key: receipt.unique_key.clone(),
        freshness_tokens: fresh.clone(),
        ..Default::default()
    };
    let answer = gateway.query_message_by_unique_key(by_unique_key).await?.into_inner();
    check_whole(answer.completeness(), &answer.shards)?;
    println!("by unique key {}", answer.messages.len());
    let by_id = QueryMessageByIdRequest {
        offset_msg_id: receipt.offset_msg_id.clone(),
        ..Default::default()
    };
    let found = gateway.query_message_by_id(by_id).await?.into_inner().message;
    println!("by id {}", String::from_utf8(found.unwrap_or_default().body)?);
    let by_offset = QueryMessageByOffsetRequest {
        topic: topic.into(),
        broker_name: receipt.broker_name.clone(),
        queue_id: receipt.queue_id,
        queue_offset: receipt.queue_offset,
        max_messages: 1,
        freshness_tokens: fresh,
        ..Default::default()
    };
    let answer = gateway.query_message_by_offset(by_offset).await?.into_inner();
    check_whole(answer.completeness(), &answer.shards)?;
    println!("by offset {}", answer.messages.len());
    Ok(())
}

async fn read_pages(gateway: &mut Gateway, topic: &str, order: &str, last: &AppendResult) -> Result<(), Failure> {
    let mut request = QueryMessageByKeyRequest {
        topic: topic.into(),
        key: order.into(),
        page_size: 30,
        freshness_tokens: vec![last.freshness_token.clone()],
        ..Default::default()
    };
    let mut found = 0;
    loop {
        let page = gateway.query_message_by_key(request.clone()).await?.into_inner();
        check_whole(page.completeness(), &page.shards)?;
        found += page.messages.len();
        // A page may be empty and still have a token.
        if page.next_page_token.is_empty() {
            println!("on all pages {found}");
            return Ok(());
        }
        request.page_token = page.next_page_token;
    }
}

/// Fails when a part of the store could not be asked: then "not found" would be no answer.
fn check_whole(completeness: Completeness, shards: &[ShardOutcome]) -> Result<(), Failure> {
    if completeness != Completeness::Partial {
        return Ok(());
    }
    let missing: Vec<String> = shards
        .iter()
        .filter_map(|shard| match &shard.error {
            Some(error) => Some(format!("{}: {}", shard.broker_name, error.message)),
            None if shard.catching_up => Some(format!("{}: still building", shard.broker_name)),
            None => None,
        })
        .collect();
    Err(format!("PARTIAL: {}", missing.join("; ")).into())
}

async fn consume(gateway: &mut Gateway, topic: &str, group: &str) -> Result<(), Failure> {
    let mut known = HashMap::new();
    let offsets = GetOffsetsRequest { consumer_group: group.into(), topic: topic.into() };
    match gateway.get_offsets(offsets).await {
        Ok(answer) => {
            for position in answer.into_inner().positions {
                known.insert((position.broker_name, position.queue_id), position.consumer_offset);
            }
        }
        Err(status) if status.code() == Code::NotFound => {} // a new group
        Err(status) => return Err(status.into()),
    }
    let mut consumed = 0;
    let all = ListTopicsRequest { topic: topic.into(), ..Default::default() };
    let topics = gateway.list_topics(all).await?.into_inner().topics;
    for queue in &topics.first().ok_or("no such topic")?.queues {
        let place = (queue.broker_name.clone(), queue.queue_id);
        let mut next = known.get(&place).copied().unwrap_or(queue.min_offset);
        // With `wait` the stream would go on with what arrives.
        let pull = PullMessagesRequest {
            topic: topic.into(),
            broker_name: queue.broker_name.clone(),
            queue_id: queue.queue_id,
            queue_offset: next,
            consumer_group: group.into(),
            ..Default::default()
        };
        let mut batches = gateway.pull_messages(pull).await?.into_inner();
        while let Some(batch) = batches.message().await? {
            consumed += batch.messages.len(); // work on them, then commit
            next = batch.next_offset;
        }
        let position = QueuePosition {
            topic: topic.into(),
            broker_name: queue.broker_name.clone(),
            queue_id: queue.queue_id,
            consumer_offset: next,
        };
        let commit = CommitOffsetsRequest {
            consumer_group: group.into(),
            positions: vec![position],
            ..Default::default()
        };
        gateway.commit_offsets(commit).await?;
    }
    println!("consumed {consumed}");
    Ok(())
}

async fn run(address: &str, topic: &str) -> Result<(), Failure> {
    let mut gateway = connect(address).await?;
    let order = format!("order-{}", SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos());
    let receipts = append_all(&mut gateway, topic, &order).await?;
    query(&mut gateway, topic, &order, &receipts[7]).await?;
    read_pages(&mut gateway, topic, &order, &receipts[COUNT - 1]).await?;
    let group = format!("{topic}-readers");
    consume(&mut gateway, topic, &group).await?;
    consume(&mut gateway, topic, &group).await // the group goes on where it stopped
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let Err(failure) = run(&arguments[1], &arguments[2]).await {
        eprintln!("{failure}");
        std::process::exit(1);
    }
}
