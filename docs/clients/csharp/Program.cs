// Appends messages, finds them by each of the four queries, reads all pages of an answer, and consumes: ADDRESS TOPIC.
//
// REPUT_CLIENT_CA names the authority of the gateway's certificate (PEM); without it the connection has no TLS.
// REPUT_API_KEY is sent with each call.

using System.Security.Cryptography.X509Certificates;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using Reput.Gateway.V1;
using Reput.Message.V1;

const int Count = 100;

var (address, topic) = (args[0], args[1]);
var ca = Environment.GetEnvironmentVariable("REPUT_CLIENT_CA");
var key = Environment.GetEnvironmentVariable("REPUT_API_KEY");
var handler = new SocketsHttpHandler();
if (ca != null)
{
    handler.SslOptions.CertificateChainPolicy = new X509ChainPolicy
    {
        TrustMode = X509ChainTrustMode.CustomRootTrust,
        CustomTrustStore = { new X509Certificate2(ca) },
        RevocationMode = X509RevocationMode.NoCheck, // an authority of one's own has no such service
    };
}
using var channel = GrpcChannel.ForAddress($"{(ca != null ? "https" : "http")}://{address}", new GrpcChannelOptions
{
    HttpHandler = handler,
    MaxReceiveMessageSize = 8 << 20, // a page has less than 4 MiB of bodies
});
var gateway = new GatewayService.GatewayServiceClient(channel);
var headers = new Metadata();
if (key != null)
{
    headers.Add("authorization", $"Bearer {key}");
}
var options = new CallOptions(headers, deadline: DateTime.UtcNow.AddSeconds(15));

try
{
    var order = $"order-{Guid.NewGuid():N}";
    var receipts = await Append(order);
    await Query(order, receipts[7]);
    await ReadPages(order, receipts[^1]);
    await Consume($"{topic}-readers");
    await Consume($"{topic}-readers"); // the group goes on where it stopped
    return 0;
}
catch (PartialAnswerException partial)
{
    Console.Error.WriteLine(partial.Message);
    return 1;
}

async Task<IReadOnlyList<AppendResult>> Append(string order)
{
    var request = new AppendMessagesRequest { Flush = FlushMode.Sync };
    for (var number = 0; number < Count; number++)
    {
        request.Messages.Add(new NewMessage
        {
            Topic = topic,
            Body = ByteString.CopyFromUtf8($"line {number}"),
            Keys = { order, $"{order}-{number}" },
        });
    }
    var receipts = (await gateway.AppendMessagesAsync(request, options)).Results;
    Console.WriteLine($"appended {receipts.Count}");
    return receipts;
}

async Task Query(string order, AppendResult receipt)
{
    // With a receipt's token, a query waits until it can see that message.
    var byKey = await gateway.QueryMessageByKeyAsync(new QueryMessageByKeyRequest
    {
        Topic = topic, Key = $"{order}-7", FreshnessTokens = { receipt.FreshnessToken },
    }, options);
    CheckWhole(byKey.Completeness, byKey.Shards);
    Console.WriteLine($"by key {byKey.Messages.Count}");
    var byUniqueKey = await gateway.QueryMessageByUniqueKeyAsync(new QueryMessageByUniqueKeyRequest
    {
        Topic = topic, UniqueKey = receipt.UniqueKey, FreshnessTokens = { receipt.FreshnessToken },
    }, options);
    CheckWhole(byUniqueKey.Completeness, byUniqueKey.Shards);
    Console.WriteLine($"by unique key {byUniqueKey.Messages.Count}");
    var byId = await gateway.QueryMessageByIdAsync(
        new QueryMessageByIdRequest { OffsetMsgId = receipt.OffsetMsgId }, options);
    Console.WriteLine($"by id {byId.Message.Body.ToStringUtf8()}");
    var byOffset = await gateway.QueryMessageByOffsetAsync(new QueryMessageByOffsetRequest
    {
        Topic = topic, BrokerName = receipt.BrokerName, QueueId = receipt.QueueId, QueueOffset = receipt.QueueOffset,
        MaxMessages = 1, FreshnessTokens = { receipt.FreshnessToken },
    }, options);
    CheckWhole(byOffset.Completeness, byOffset.Shards);
    Console.WriteLine($"by offset {byOffset.Messages.Count}");
}

async Task ReadPages(string order, AppendResult last)
{
    var request = new QueryMessageByKeyRequest
    {
        Topic = topic, Key = order, PageSize = 30, FreshnessTokens = { last.FreshnessToken },
    };
    var found = 0;
    do
    {
        var page = await gateway.QueryMessageByKeyAsync(request, options);
        CheckWhole(page.Completeness, page.Shards);
        found += page.Messages.Count;
        request.PageToken = page.NextPageToken;
    } while (request.PageToken != ""); // a page may be empty and still have a token
    Console.WriteLine($"on all pages {found}");
}

static void CheckWhole(Completeness completeness, IEnumerable<ShardOutcome> shards)
{
    if (completeness == Completeness.Partial)
    {
        throw new PartialAnswerException(
            from shard in shards
            where shard.Error != null || shard.CatchingUp
            select $"{shard.BrokerName}: {shard.Error?.Message ?? "still building"}");
    }
}

async Task Consume(string group)
{
    var known = new Dictionary<(string, int), long>();
    try
    {
        var offsets = new GetOffsetsRequest { ConsumerGroup = group, Topic = topic };
        foreach (var position in (await gateway.GetOffsetsAsync(offsets, options)).Positions)
        {
            known[(position.BrokerName, position.QueueId)] = position.ConsumerOffset;
        }
    }
    catch (RpcException error) when (error.StatusCode == StatusCode.NotFound)
    {
        // A new group.
    }
    var consumed = 0;
    var topics = await gateway.ListTopicsAsync(new ListTopicsRequest { Topic = topic }, options);
    foreach (var queue in topics.Topics[0].Queues)
    {
        var next = known.GetValueOrDefault((queue.BrokerName, queue.QueueId), queue.MinOffset);
        // With `Wait` the stream would go on with what arrives.
        using var stream = gateway.PullMessages(new PullMessagesRequest
        {
            Topic = topic, BrokerName = queue.BrokerName, QueueId = queue.QueueId, QueueOffset = next,
            ConsumerGroup = group,
        }, options);
        await foreach (var batch in stream.ResponseStream.ReadAllAsync())
        {
            consumed += batch.Messages.Count; // work on them, then commit
            next = batch.NextOffset;
        }
        var commit = new CommitOffsetsRequest { ConsumerGroup = group };
        commit.Positions.Add(new QueuePosition
        {
            Topic = topic, BrokerName = queue.BrokerName, QueueId = queue.QueueId, ConsumerOffset = next,
        });
        await gateway.CommitOffsetsAsync(commit, options);
    }
    Console.WriteLine($"consumed {consumed}");
}

/// <summary>A part of the store could not be asked: "not found" would be no answer.</summary>
internal sealed class PartialAnswerException(IEnumerable<string> missing)
    : Exception("PARTIAL: " + string.Join("; ", missing));
