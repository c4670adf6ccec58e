// A basket in a shop: which items are in it, and what they cost.

export interface Item {
    name: string;
    price: number;
    count: number;
}

export class UnknownItem extends Error {
    constructor(name: string) {
        super(`there is no ${name} in the basket`);
    }
}

export class Basket {
    private readonly items = new Map<string, Item>();

    get size(): number {
        return this.items.size;
    }

    add(item: Item): void {
        const known = this.items.get(item.name);
        if (known === undefined) {
            this.items.set(item.name, { ...item });
        } else {
            known.count += item.count;
        }
    }

    find(name: string): Item {
        const item = this.items.get(name);
        if (item === undefined) {
            throw new UnknownItem(name);
        }
        return item;
    }

    /** What all items cost together. */
    total(): number {
        let sum = 0;
        for (const item of this.items.values()) {
            sum += item.price * item.count;
        }
        return sum;
    }

    /** The item of which one piece costs the most. */
    dearest(): Item | undefined {
        let found: Item | undefined;
        for (const item of this.items.values()) {
            if (found === undefined || item.price > found.price) {
                found = item;
            }
        }
        return found;
    }

    toJSON(): Item[] {
        return [...this.items.values()];
    }
}

export function restore(text: string): Basket {
    const basket = new Basket();
    for (const item of JSON.parse(text) as Item[]) {
        basket.add(item);
    }
    return basket;
}
