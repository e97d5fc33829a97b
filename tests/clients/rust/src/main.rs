//! The official Rust client behind the line protocol of tests/clients/programs.py. Version 5.0.0 has neither a push consumer nor
//! a change of the invisible duration, nor a recall.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use rocketmq::conf::{ClientOption, LoggingFormat, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

type Outcome = Result<(), Box<dyn Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let order: Value = serde_json::from_str(&std::env::args().nth(1).ok_or("no order")?)?;
    let lines = BufReader::new(tokio::io::stdin()).lines();
    std::fs::create_dir_all("logs")?; // the client writes its log there
    match text(&order, "role") {
        "send" => send(&order, lines).await?,
        "simple" => simple(&order, lines).await?,
        role => return Err(format!("this client has no {role}").into()),
    }
    say("stopped", json!({}));
    Ok(())
}

async fn send(order: &Value, mut lines: Lines<BufReader<Stdin>>) -> Outcome {
    let mut option = ProducerOption::default();
    option.set_logging_format(LoggingFormat::Json);
    option.set_topics(vec![text(order, "topic")]);
    let mut producer = match order["checker"].as_str() {
        Some(verdict) => {
            let verdict = verdict.to_string();
            let check = move |_: String, message: MessageView| {
                say("checked", described(&message));
                match verdict.as_str() {
                    "COMMIT" => TransactionResolution::COMMIT,
                    "ROLLBACK" => TransactionResolution::ROLLBACK,
                    _ => TransactionResolution::UNKNOWN,
                }
            };
            Producer::new_transaction_producer(option, client_option(order), Box::new(check))?
        }
        None => Producer::new(option, client_option(order))?,
    };
    producer.start().await?;
    say("started", json!({}));
    while let Some(line) = lines.next_line().await? {
        let line: Value = serde_json::from_str(&line)?;
        let body = text(&line, "body").as_bytes().to_vec();
        let mut builder = MessageBuilder::builder().set_topic(text(order, "topic")).set_body(body);
        if line["tag"].is_string() {
            builder = builder.set_tag(text(&line, "tag"));
        }
        if let Some(keys) = line["keys"].as_array() {
            builder = builder.set_keys(keys.iter().filter_map(Value::as_str).collect());
        }
        if let Some(properties) = line["properties"].as_object() {
            let pairs = properties.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
            builder = builder.set_properties(pairs.collect::<HashMap<_, _>>());
        }
        if line["message_group"].is_string() {
            builder = builder.set_message_group(text(&line, "message_group"));
        }
        if let Some(seconds) = line["deliver_at_seconds"].as_i64() {
            builder = builder.set_delivery_timestamp(seconds);
        }
        if line["transaction"].is_string() {
            let message = builder.enable_transaction().build()?;
            let transaction = producer.send_transaction_message(message).await?;
            let message_id = transaction.message_id().to_string();
            match text(&line, "transaction") {
                "commit" => transaction.commit().await?,
                "rollback" => transaction.rollback().await?,
                _ => {}
            }
            say("sent", json!({"message_id": message_id}));
            continue;
        }
        let receipt = producer.send(builder.build()?).await?;
        say("sent", json!({"message_id": receipt.message_id()}));
    }
    producer.shutdown().await?;
    Ok(())
}

async fn simple(order: &Value, mut lines: Lines<BufReader<Stdin>>) -> Outcome {
    let mut option = SimpleConsumerOption::default();
    option.set_logging_format(LoggingFormat::Json);
    option.set_consumer_group(text(order, "group"));
    option.set_topics(vec![text(order, "topic")]);
    let mut consumer = SimpleConsumer::new(option, client_option(order))?;
    consumer.start().await?;
    say("started", json!({}));
    let filter = match order["sql"].as_str() {
        Some(sql) => FilterExpression::new(FilterType::Sql, sql),
        None => FilterExpression::new(FilterType::Tag, order["tag"].as_str().unwrap_or("*")),
    };
    let mut held: HashMap<String, MessageView> = HashMap::new();
    while let Some(line) = lines.next_line().await? {
        let line: Value = serde_json::from_str(&line)?;
        match text(&line, "do") {
            "receive" => {
                let batch = line["batch"].as_i64().unwrap_or(1) as i32;
                let invisible = Duration::from_secs(line["invisible_seconds"].as_u64().unwrap_or(0));
                match consumer.receive_with(text(order, "topic"), &filter, batch, invisible).await {
                    Ok(messages) => {
                        say("batch", json!({"messages": messages.iter().map(described).collect::<Vec<_>>()}));
                        held.extend(messages.into_iter().map(|message| (message.message_id().to_string(), message)));
                    }
                    Err(error) => say("failed", json!({"error": error.to_string()})),
                }
            }
            "ack" => match consumer.ack(&held[text(&line, "message_id")]).await {
                Ok(()) => say("acked", json!({})),
                Err(error) => say("failed", json!({"error": error.to_string()})),
            },
            action => return Err(format!("this client has no {action}").into()),
        }
    }
    consumer.shutdown().await?;
    Ok(())
}

fn client_option(order: &Value) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(text(order, "endpoint"));
    if order.get("access_key").is_some() {
        option.set_access_key(text(order, "access_key"));
        option.set_secret_key(text(order, "secret"));
    }
    option.set_enable_tls(false);
    if let Some(seconds) = order["await_seconds"].as_u64() {
        // This is also its deadline, so that it must be more than the least that a server waits.
        option.set_long_polling_timeout(Duration::from_secs(seconds + 3));
    }
    option
}

fn described(message: &MessageView) -> Value {
    json!({
        "message_id": message.message_id(),
        "topic": message.topic(),
        "body": String::from_utf8_lossy(message.body()),
        "tag": message.tag(),
        "keys": message.keys(),
        "properties": message.properties(),
        "message_group": message.message_group(),
        "attempt": message.delivery_attempt(),
    })
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn say(event: &str, mut said: Value) {
    said["event"] = event.into();
    println!("{said}");
}
