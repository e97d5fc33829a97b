//! Generates the client from the descriptor set that lies beside the protos: no protoc is needed.

use std::error::Error;
use std::fs;

use prost::Message;
use prost_types::FileDescriptorSet;

// In a project of yours: a copy of that file.
const DESCRIPTORS: &str = "../../../protos/reput/descriptors.binpb";
const PACKAGES: [&str; 4] = ["reput.gateway.v1", "reput.message.v1", "google.rpc", "google.protobuf"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={DESCRIPTORS}");
    let mut descriptors = FileDescriptorSet::decode(fs::read(DESCRIPTORS)?.as_slice())?;
    descriptors.file.retain(|file| PACKAGES.contains(&file.package()));
    tonic_prost_build::configure()
        .build_server(false)
        .include_file("protos.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
