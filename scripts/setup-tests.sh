#!/usr/bin/env bash
# Installs what the tests need of the system: a software Vulkan adapter for the shader kernels. Does nothing where one is
# there; where it cannot be installed, says so, and the tests that need it print why they skip.
set -euo pipefail

if ls /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json >/dev/null 2>&1; then
    echo "a Vulkan driver is installed"
    exit 0
fi
if [ "$(uname -s)" != Linux ] || ! command -v apt-get >/dev/null; then
    echo "no Vulkan driver, and no apt-get to install one; GPU tests will skip"
    exit 0
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
        echo "no Vulkan driver; install one with: apt-get install mesa-vulkan-drivers. GPU tests will skip"
        exit 0
    fi
    sudo=(sudo -n)
fi
echo "installing mesa-vulkan-drivers"
if ! { "${sudo[@]}" apt-get update -qq && DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq mesa-vulkan-drivers; }; then
    echo "mesa-vulkan-drivers could not be installed; GPU tests will skip"
fi
