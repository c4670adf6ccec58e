<?php

namespace Shop;

/** A shelf (of things). */
class Shelf
{
    private array $things = [];

    public function add(string $name, int $count = 1): void
    {
        if (!isset($this->things[$name])) {
            $this->things[$name] = 0;
        }
        $this->things[$name] += $count;
    }

    public function names(): array
    {
        return array_map(fn($name) => "'{$name}'", array_keys($this->things));
    }
}
