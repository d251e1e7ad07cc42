"""The simulated task family's invented quantities: names and operands, without their conventions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A named figure made of two operands; how to report it is the latent convention."""

    name: str
    first: str
    second: str


_TABLE = """
cold-chain breach rate | thawed crates | shipped crates
dock idle index | idle dock hours | staffed dock hours
pallet return yield | returned pallets | issued pallets
last-mile miss rate | missed drops | planned drops
yard dwell excess | actual dwell hours | agreed dwell hours
container fill factor | loaded volume | container volume
customs hold share | held consignments | cleared consignments
route drift | driven kilometres | planned kilometres
reefer fuel burn index | reefer litres | traction litres
cross-dock ratio | cross-docked parcels | stored parcels
parcel scar rate | dented parcels | sorted parcels
manifest gap | declared pieces | counted pieces
berth overrun | berth hours used | berth hours booked
crane lull share | lull minutes | lift minutes
empty-run quota | empty trips | laden trips
ward turnover tempo | discharges | staffed beds
triage drift | retriaged patients | triaged patients
theatre slack | unused theatre hours | used theatre hours
bed hold quota | reserved beds | open beds
readmission echo | returned patients | released patients
infusion variance | infused millilitres | prescribed millilitres
specimen spoilage | spoiled specimens | drawn specimens
on-call strain | night call-outs | day call-outs
pharmacy reissue rate | reissued packs | dispensed packs
imaging no-show index | missed scans | booked scans
ambulance echo factor | repeat dispatches | first dispatches
dialysis chair use | occupied chair hours | offered chair hours
consent lag share | late consents | timely consents
swab recall rate | recalled swabs | stocked swabs
rota patch quota | patched shifts | planned shifts
grid sag index | sagging feeders | healthy feeders
curtailment depth | curtailed megawatts | offered megawatts
battery fade | present capacity | rated capacity
inverter clip share | clipped output | clean output
tidal lull quota | slack hours | flow hours
boiler soot factor | soot grams | fuel kilograms
meter ghost rate | silent meters | reporting meters
feeder swap tempo | swapped feeders | inspected feeders
reserve bite | reserve drawn | reserve held
heat-loop leak index | make-up litres | loop litres
turbine yaw debt | yaw-off hours | yaw-on hours
peak shave depth | shaved peak | raw peak
solar haze drag | hazy output | clear output
transformer hum share | loud transformers | quiet transformers
rebate uptake | paid rebates | offered rebates
orchard cull rate | culled fruit | picked fruit
silo settle factor | settled height | filled height
irrigation ebb | drained litres | pumped litres
hive swarm index | swarmed hives | kept hives
seed skip quota | skipped holes | sown holes
milk chill deviation | warm litres | chilled litres
graft take rate | taken grafts | set grafts
pasture rest share | rested plots | grazed plots
kiln warp rate | warped tiles | fired tiles
loom stop index | stopped minutes | running minutes
mould reuse tempo | reused moulds | new moulds
weld redo quota | redone welds | passed welds
scrap recovery depth | recovered alloy | scrapped alloy
torque drift | measured torque | nominal torque
paint overspray share | lost paint | applied paint
archive gap index | missing folios | listed folios
loan late tempo | late returns | prompt returns
tram bunching factor | bunched trams | spaced trams
ferry wash-out rate | cancelled sailings | timetabled sailings
"""

QUANTITIES = tuple(
    Quantity(name=name.strip(), first=first.strip(), second=second.strip())
    for name, first, second in (line.split("|") for line in _TABLE.strip().splitlines())
)
